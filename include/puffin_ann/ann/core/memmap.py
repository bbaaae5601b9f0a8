"""Arrays in files that are mapped, and arrays as kernels take them."""

import errno
import os
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Scalar = TypeVar("Scalar", bound=np.generic)

_NOT_OFFERED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def new_array(
    path: Path, dtype: DTypeLike, shape: tuple[int, ...]
) -> "np.memmap[Any, np.dtype[Any]]":
    """Create a `.npy` file and map it for writing, its room on disk taken at once.

    To write to a page of a sparse file that the disk has no room for kills the process; here a full
    disk is an `OSError` instead.
    """
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            except OSError as error:
                if error.errno not in _NOT_OFFERED:
                    raise
    return array


def read_only(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the array as kernels take what they only read: contiguous and read-only.

    It is of NumPy's base class, and copied only if it must be: a kernel is compiled for every kind
    of array, and a memory map is another kind.
    """
    view = np.ascontiguousarray(array).view(np.ndarray)
    view.flags.writeable = False
    return view
