"""Arrays in files that are mapped, and arrays as kernels take them."""

import errno
import math
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from puffin_ann.ann.core import blas

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


class LargeWrites:
    """A `.npy` file written from its first byte to its last, in pieces of `PIECE` bytes.

    What is written at once Linux keeps in large pages where the file system can, and maps as such:
    searches at random places then find their addresses sooner, and a fresh process meets one page
    fault in 2 MiB, not one in 4 KiB. Files filled through a mapping have small pages.

    Args:
        path: file to write.
        dtype: of the array.
        shape: of the array; as many bytes must be written.
        threads: threads that write pieces of what is given at once.
    """

    PIECE = 8 << 20

    def __init__(
        self, path: Path, dtype: DTypeLike, shape: tuple[int, ...], *, threads: int = 1
    ) -> None:
        kind = np.dtype(dtype)
        self._path = path
        self._left = kind.itemsize * math.prod(shape)
        self._threads = threads
        self._at = 0
        self._file = path.open("wb", buffering=0)
        header = {"descr": kind.str, "fortran_order": False, "shape": shape}
        start = _Start()
        np.lib.format.write_array_header_1_0(start, header)
        self._waiting = start.taken
        """Bytes that wait for the rest of their piece."""

    def write(self, array: NDArray[Any]) -> None:
        """Append an array's bytes, in C order."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        self._left -= len(data)
        whole = len(self._waiting) + len(data)
        whole -= whole % self.PIECE
        if not whole:
            self._waiting += bytes(data)
            return
        first = self.PIECE - len(self._waiting)
        last = whole - len(self._waiting)
        self._put([self._waiting, data[:first]], self._at)
        begins = range(first, last, self.PIECE)
        for _ in blas.parallel(lambda at: self._put_piece(data, first, at), begins, self._threads):
            pass
        self._at += whole
        self._waiting = bytes(data[last:])

    def _put_piece(self, data: memoryview, first: int, at: int) -> None:
        self._put([data[at : at + self.PIECE]], self._at + self.PIECE + at - first)

    def _put(self, parts: "list[bytes | memoryview]", at: int) -> None:
        wanted = sum(map(len, parts))
        written = os.pwritev(self._file.fileno(), parts, at)
        if written < wanted:  # a signal, or a disk that is nearly full
            rest = memoryview(b"".join(parts))[written:]
            self._put([rest], at + written)

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write what is left and close the file; `ValueError` if bytes of the array are missing."""
        with self._file:
            if kind is None and self._waiting:
                self._put([self._waiting], self._at)
        if kind is None and self._left:
            raise ValueError(f"{self._path} is {self._left} bytes short of its array")


class _Start:
    """Takes what NumPy writes in front of an array."""

    taken = b""

    def write(self, data: bytes) -> None:
        self.taken += data


def read_only(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the array as kernels take what they only read: contiguous and read-only.

    It is of NumPy's base class, and copied only if it must be: a kernel is compiled for every kind
    of array, and a memory map is another kind.
    """
    view = np.ascontiguousarray(array).view(np.ndarray)
    view.flags.writeable = False
    return view


def as_asked(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the array as kernels take what a caller asks: contiguous, aligned and writable.

    Copied only if it must be, see `read_only`: a query out of Arrow or Parquet is not writable, and
    the first such would wait for seconds until kernels are compiled for its kind.
    """
    return array if array.flags.carray else np.require(array, requirements=("C", "A", "W"))
