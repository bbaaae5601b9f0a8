"""Folders on local disk that stages work in."""

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from puffin_ann.errors import EnvironmentProblemError

_OF_THE_DISK = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE, errno.ENODEV}
)
"""What a file system says that is full, read-only or broken."""


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """Give an empty folder for this user alone, which is removed after the body.

    Args:
        purpose: part of its name, such as `shard-3`.

    Raises:
        EnvironmentProblemError: there is none to be had, or the disk fails or is full.
    """
    prefix = f"puffin-ann-{purpose}-"
    try:
        made = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    except OSError as error:
        raise EnvironmentProblemError(
            f"no folder to work in can be made: {error}; free some room, or set TMPDIR"
        ) from error
    with made as folder:
        try:
            yield Path(folder)
        except OSError as error:
            if error.errno not in _OF_THE_DISK and not _is_in(folder, error):
                raise
            raise EnvironmentProblemError(
                f"the disk fails or is full while {folder} is worked in: {error}; free some room, "
                "or set TMPDIR to a folder on another disk"
            ) from error


def new_folder(scratch: Path, name: str) -> Path:
    """Return a new folder in another: engines name files in theirs as they like."""
    folder = scratch / name
    folder.mkdir()
    return folder


def _is_in(folder: str, error: OSError) -> bool:
    return str(error.filename or "").startswith(folder)
