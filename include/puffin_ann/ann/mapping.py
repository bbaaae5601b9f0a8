"""Arrays in files that are mapped for writing."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

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
