"""Folders of the cache that are in use, so that no process removes them to make room.

A folder is in use from when it is handed out until its files are mapped; from then on it may go, as
mapped files stay readable until they are closed. Processes tell each other by a lock on the folder
itself, which ends with the process however that ends.
"""

import contextlib
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GONE = "gone-"
"""What the names of folders begin with that are being removed."""

_LATELY_SECONDS = 600
"""Where the file system has no locks, a folder used within so long counts as in use."""

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@contextmanager
def hold(folder: Path) -> Iterator[bool]:
    """Keep a folder from being removed to make room; tells whether it is there.

    Raises:
        OSError: it cannot be opened though it is there.
    """
    try:
        number = os.open(folder, _OPEN)
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    try:
        with contextlib.suppress(OSError):  # no locks here: see `_LATELY_SECONDS`
            fcntl.flock(number, fcntl.LOCK_SH)
        yield _is_at(number, folder)  # it may have been removed before it was locked
    finally:
        os.close(number)


def remove_unless_held(folder: Path, used_at: float) -> bool:
    """Remove a folder that no process holds; returns whether it did.

    Args:
        folder: of the cache.
        used_at: when it was handed out last, seconds since 1970.
    """
    try:
        number = os.open(folder, _OPEN)
    except OSError:
        return False
    try:
        if _is_held(number, used_at):
            return False
        return remove(folder)
    finally:
        os.close(number)


def remove(folder: Path) -> bool:
    """Remove a folder, even one in use; returns whether it did.

    It leaves its name first, so that nobody finds one that is removed by half.
    """
    gone = folder.with_name(f"{GONE}{uuid.uuid4().hex}")
    try:
        folder.rename(gone)
    except OSError:
        return False
    if gone.is_dir() and not gone.is_symlink():
        shutil.rmtree(gone, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            gone.unlink()
    return True


def _is_held(number: int, used_at: float) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return abs(time.time() - used_at) < _LATELY_SECONDS
    return False


def _is_at(number: int, folder: Path) -> bool:
    try:
        there = os.lstat(folder)
    except OSError:
        return False
    here = os.fstat(number)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
