"""Load and keep one compiled kernel, in a file whose bytes and writers are checked.

A file of the cache is unpickled and its machine code is run. So it is loaded only if it belongs to
this user or to root, and no other user can write to it; any other file counts as if it were not
there. Nor is a damaged file a reason not to answer: the kernel is compiled again.
"""

import io
import logging
import os
import pickle
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal

from numba.core.serialize import dumps

from puffin_ann import private_folders
from puffin_ann.errors import UnsafeFolderError
from puffin_ann.kernel_cache import numba_start
from puffin_ann.kernel_cache.kernel_folders import is_of_code

log = logging.getLogger("puffin_ann.kernels")

SUFFIX = ".kernel"
CHECKSUM_BYTES = 4
"""Of a file, before what it has a checksum of: machine code that is damaged ends the process."""
RUNTIME = "runtime.code"
"""What all kernels that make arrays call, beside them; see `numba_start`."""

Writers = Literal["of the code", "this user", "anyone"]
"""Who may have written a file that is loaded: as for the library's code, this user or root, all."""

pickled: Any = dumps
"""Numba's pickling, which takes functions by value."""


def load(path: Path, key: str, writers: Writers) -> Any:
    """Return what was kept of a kernel; None if there is nothing, or it is not to be used.

    Args:
        path: of the file.
        key: that it must have been kept with.
        writers: who may have written it.
    """
    with suppress(FileNotFoundError), telling(path), _opened(path, writers) as file:
        data = file.read()
        checksum, content = data[:CHECKSUM_BYTES], data[CHECKSUM_BYTES:]
        if checksum != _checksum(content):
            raise ValueError("its bytes are not those that were written")
        parts = io.BytesIO(content)
        return numba_start.load(parts) if numba_start.load(parts) == key else None
    return None


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Take a kernel that cannot be loaded, whatever its bytes trip over, for one that is gone."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        log.warning(
            "compiled kernel %s is not used: %s: %s; it is compiled again",
            path,
            type(error).__name__,
            error,
        )


def _opened(path: Path, writers: Writers) -> BinaryIO:
    """Open a file of the cache.

    Raises:
        UnsafeFolderError: another user may have written it.
        OSError: it is not there, is a link, or cannot be read.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and _is_trusted(file.fileno(), status, writers):
        return file
    file.close()
    raise UnsafeFolderError(
        f"it is no regular file that its user or root alone can write to (it belongs to user "
        f"{status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o})"
    )


def _is_trusted(descriptor: int, status: os.stat_result, writers: Writers) -> bool:
    if writers == "of the code":
        return is_of_code(descriptor, status)
    return writers == "anyone" or private_folders.is_ours(status)


def save(path: Path, key: str, reduced: Any) -> None:
    """Keep a kernel, for this user alone to write to, under its name only when it is whole.

    Args:
        path: of the file; its folder is made where it is missing.
        key: in words, what the kernel depends on.
        reduced: the kernel, ready to be pickled.

    Raises:
        OSError: it cannot be written.
    """
    payload = pickled(reduced)
    os.makedirs(path.parent, mode=0o700, exist_ok=True)
    content = pickle.dumps(key) + payload
    with _replaced(path) as file:
        file.write(_checksum(content) + content)


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(CHECKSUM_BYTES, "little")


@contextmanager
def _replaced(path: Path) -> Iterator[BinaryIO]:
    partial = f"{path}.{os.urandom(8).hex()}"
    try:
        with open(partial, "xb", opener=_for_us_alone) as file:
            yield file
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
