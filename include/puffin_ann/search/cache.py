"""The one local disk cache: shards in the form they are searched in, shared by all processes."""

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from puffin_ann.errors import EnvironmentProblemError
from puffin_ann.settings import cache_folder, settings

_MARK = ".complete"


class LocalCache:
    """Folders filled once and then only read.

    A folder appears under its final name by a rename, so a reader never sees half of one and two
    processes that fill the same key both end with the same folder. Folders used longest ago are
    removed beyond `max_bytes`; one that another process has mapped stays readable until it lets go.
    """

    def __init__(self, root: Path | None = None, max_bytes: int | None = None) -> None:
        found = root or cache_folder("shards")
        if found is None:
            raise EnvironmentProblemError(
                f"neither {settings().cache_dir} nor {tempfile.gettempdir()} can be written, and "
                "shards are searched from local disk; set PUFFIN_ANN_CACHE_DIR"
            )
        self.root = found
        self.max_bytes = max_bytes or settings().cache_max_bytes

    def folder(self, key: str, fill: Callable[[Path], None]) -> Path:
        """Return the folder of `key`, filled by `fill(folder)` if it is not there yet.

        Args:
            key: names the content for ever, e.g. the file's path, length and the blob's range.
            fill: writes the content into the empty folder it is given; may raise.

        Raises:
            EnvironmentProblemError: the disk is full.
        """
        final = self.root / hashlib.sha256(key.encode()).hexdigest()[:32]
        if not (final / _MARK).exists():
            try:
                self._fill(final, fill)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise EnvironmentProblemError(
                    f"no room for a shard in {self.root}: {error.strerror}; free some, or set "
                    "PUFFIN_ANN_CACHE_DIR"
                ) from None
        with contextlib.suppress(OSError):  # a read-only cache still serves
            os.utime(final / _MARK)
        return final

    def forget(self, folder: Path) -> None:
        """Remove a folder that turned out not to hold what was filled into it."""
        (folder / _MARK).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)

    def _fill(self, final: Path, fill: Callable[[Path], None]) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="fill-", dir=self.root))
        try:
            fill(work)
            size = sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
            (work / _MARK).write_text(str(size))
            self._make_room(size)
            try:
                work.rename(final)
            except OSError:
                if not (final / _MARK).exists():
                    raise
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _make_room(self, size: int) -> None:
        entries: list[tuple[float, int, Path]] = []
        for mark in self.root.glob(f"*/{_MARK}"):
            if mark.parent.name.startswith("fill-"):
                continue
            with contextlib.suppress(OSError, ValueError):
                entries.append((mark.stat().st_mtime, int(mark.read_text()), mark.parent))
        total = size + sum(entry[1] for entry in entries)
        for _, freed, folder in sorted(entries):
            if total <= self.max_bytes:
                break
            shutil.rmtree(folder, ignore_errors=True)
            total -= freed
        self._remove_abandoned()

    def _remove_abandoned(self) -> None:
        """Remove what a process that died while filling left behind, a day later."""
        for folder in self.root.glob("fill-*"):
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime > 86_400:
                    shutil.rmtree(folder, ignore_errors=True)
