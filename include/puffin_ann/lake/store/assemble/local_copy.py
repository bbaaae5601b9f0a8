"""Append bytes and ranges of files to a file of the local file system."""

import ctypes
import errno
import os
from functools import lru_cache
from typing import Any

CHUNK = 1 << 18
"""Bytes that pass through this process at a time: few enough to stay in the processor's cache."""

_CANNOT = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM}
)
"""What a kernel says that does not copy between two such files, though they are sound."""


def reserve(out: int, length: int) -> None:
    """Have the file system set aside room for a file that is about to be written, if it can.

    A disk that is too full says so before anything is copied; and into room that is there, in few
    long pieces, ext4 copies half as fast again. Not `os.posix_fallocate`: that writes to every
    block where the file system cannot do it.

    Args:
        out: descriptor of a file open for writing.
        length: bytes that it will have.

    Raises:
        OSError: there is not so much room.
    """
    fallocate = _fallocate()
    if fallocate is None or not length or fallocate(out, 0, 0, length) == 0:
        return
    number = ctypes.get_errno()
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        raise OSError(number, os.strerror(number))


@lru_cache(maxsize=1)
def _fallocate() -> Any:
    """Return Linux's `fallocate` of 64-bit lengths; None where there is none."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function


def append_range(source: int, offset: int, length: int, out: int) -> int:
    """Append a range of an open file to another; returns its bytes, fewer where the source ends.

    The kernel copies where it can and that may spare the bytes their way through this machine.

    Args:
        source: descriptor of a file open for reading; its position is left alone.
        offset: of the range.
        length: bytes of the range.
        out: descriptor of the file that is written, at its position; not open for appending.

    Raises:
        OSError: a file cannot be read or written.
    """
    done = 0
    by_kernel = hasattr(os, "copy_file_range") and _may_lie_elsewhere(out)
    while done < length:
        copied = 0
        if by_kernel:
            try:
                copied = os.copy_file_range(source, out, length - done, offset_src=offset + done)
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
                by_kernel = False
        # Some kernels copy nothing, and give no error, where files are made up as they are read:
        # only reading tells whether this one ends here.
        copied = copied or _pass_through(source, offset + done, length - done, out)
        if not copied:
            break
        done += copied
    return done


def _may_lie_elsewhere(file: int) -> bool:
    """Tell whether a file system is not on a block device of this machine: a server's, perhaps.

    On one that is, the kernel copies a page at a time, a quarter slower than this process does; to
    share extents, our ranges would have to begin with a block.
    """
    return os.major(os.fstat(file).st_dev) == 0


def append(data: bytes, out: int) -> None:
    """Write all of `data` at the position of an open file."""
    left = memoryview(data)
    while left:
        left = left[os.write(out, left) :]


def _pass_through(source: int, offset: int, length: int, out: int) -> int:
    data = os.pread(source, min(length, CHUNK), offset)
    append(data, out)
    return len(data)
