"""The one local disk cache: shards in the form they are searched in, shared by all processes."""

import contextlib
import errno
import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from puffin_ann.errors import EnvironmentProblemError
from puffin_ann.search.seal import MARK, Seal
from puffin_ann.settings import cache_folder, settings

log = logging.getLogger("puffin_ann")

_NAMES = "names"


class LocalCache:
    """Folders filled once and then only read.

    A folder appears under its final name by a rename, so a reader never sees half of one and two
    processes that fill the same key both end with the same folder. Folders used longest ago are
    removed beyond `max_bytes`; one that another process has mapped stays readable until it lets go.

    A folder that was cut short or altered since is filled anew. That is told by its files' lengths
    and times, at each hit, and once a day by their checksums, in the background.
    """

    def __init__(self, root: Path | None = None, max_bytes: int | None = None) -> None:
        found = root or cache_folder("shards")
        if found is None:
            raise EnvironmentProblemError(
                f"neither {settings().cache_dir} nor a temporary folder can be written, and "
                "shards are searched from local disk; set PUFFIN_ANN_CACHE_DIR"
            )
        self.root = found
        self.max_bytes = max_bytes or settings().cache_max_bytes
        self._spoilt = threading.Event()

    def key(self, where: str, look: Callable[[], str]) -> str:
        """Return the key of what lies at a place, looked up there once and then known.

        Args:
            where: names a place whose content never changes, such as a range of a file.
            look: returns the key of what is there; its content's, so that copies share one folder.
        """
        note = self.root / _NAMES / _hashed(where)
        with contextlib.suppress(OSError):
            return note.read_text()
        key = look()
        with contextlib.suppress(OSError):  # a read-only cache still serves
            note.parent.mkdir(parents=True, exist_ok=True)
            partial = note.with_suffix(f".{uuid.uuid4().hex}")
            partial.write_text(key)
            partial.replace(note)
        return key

    def folder(self, key: str, fill: Callable[[Path], None]) -> Path:
        """Return the folder of `key`, filled by `fill(folder)` if it is not there yet.

        Args:
            key: names the content for ever, e.g. the file's path, length and the blob's range.
            fill: writes the content into the empty folder it is given; may raise.

        Raises:
            EnvironmentProblemError: the disk is full.
        """
        final = self.root / _hashed(key)
        seal = Seal.of(final)
        if final.exists() and (seal is None or not seal.holds()):
            log.warning("%s is not what was unpacked; it is unpacked anew", final)
            self.forget(final)
            seal = None
        if seal is None:
            try:
                self._fill(final, fill)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise EnvironmentProblemError(
                    f"no room for a shard in {self.root}: {error.strerror}; free some, or set "
                    "PUFFIN_ANN_CACHE_DIR"
                ) from None
        elif seal.is_due():
            threading.Thread(target=self._prove, args=(seal,), daemon=True).start()
        with contextlib.suppress(OSError):  # a read-only cache still serves
            os.utime(final / MARK)
        return final

    def forget(self, folder: Path) -> None:
        """Remove a folder that turned out not to hold what was filled into it."""
        with contextlib.suppress(IsADirectoryError):
            (folder / MARK).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)

    def take_spoilt(self) -> bool:
        """Tell, once, whether a folder handed out was found spoilt since; it has to be asked for
        again.
        """
        if not self._spoilt.is_set():
            return False
        self._spoilt.clear()
        return True

    def _prove(self, seal: Seal) -> None:
        """Compare checksums; on a thread of its own, since shards may be large."""
        try:
            if seal.proves():
                return
        except OSError as error:
            log.warning("%s cannot be read: %s", seal.folder, error)
        log.error("%s is not what was unpacked, by its checksums; it is removed", seal.folder)
        self.forget(seal.folder)
        self._spoilt.set()

    def _fill(self, final: Path, fill: Callable[[Path], None]) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="fill-", dir=self.root))
        try:
            fill(work)
            self._make_room(Seal.put(work).bytes)
            try:
                work.rename(final)
            except OSError:
                if not (final / MARK).exists():
                    raise
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _make_room(self, size: int) -> None:
        entries: list[tuple[float, int, Path]] = []
        for mark in self.root.glob(f"*/{MARK}"):
            if mark.parent.name.startswith("fill-"):
                continue
            seal = Seal.of(mark.parent)
            with contextlib.suppress(OSError):
                if seal is None:
                    self.forget(mark.parent)
                else:
                    entries.append((mark.stat().st_mtime, seal.bytes, mark.parent))
        total = size + sum(entry[1] for entry in entries)
        for _, freed, folder in sorted(entries):
            if total <= self.max_bytes:
                break
            shutil.rmtree(folder, ignore_errors=True)
            total -= freed
        self._remove_abandoned()

    def _remove_abandoned(self) -> None:
        """Remove notes of folders that are gone, and, a day later, what a process that died while
        filling left behind.
        """
        for note in (self.root / _NAMES).glob("*"):
            with contextlib.suppress(OSError):
                if not (self.root / _hashed(note.read_text())).exists():
                    note.unlink()
        for folder in self.root.glob("fill-*"):
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime > 86_400:
                    shutil.rmtree(folder, ignore_errors=True)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
