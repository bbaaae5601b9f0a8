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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from puffin_ann.errors import (
    CacheUnusableError,
    EnvironmentProblemError,
    LocalCopyError,
    UnsafeFolderError,
)
from puffin_ann.private_folders import belongs_to_us
from puffin_ann.search.cache import in_use
from puffin_ann.search.cache.integrity import MARK, Seal
from puffin_ann.settings import cache_folder, renew_folder, settings

log = logging.getLogger("puffin_ann")

Fill = Callable[[Path], None]
"""Writes the content into the empty folder it is given; may raise."""

_NAMES = "names"
_FILLING = "fill-"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_ABANDONED_SECONDS = 86_400
_unkept: set[Path] = set()
"""Final names of shards that this process told of that they do not fit, whoever opened them."""

NEARLY_FULL = 0.8
"""Share of the bytes allowed from which on each shard that comes has all others looked at: what
other processes bring meanwhile counts then."""
LOOKS_SHARE = 20
"""Below it they are looked at once in so many times what a look takes: to fill a cache with ten
thousand shards takes no longer for each the more there are."""
RECENT_SECONDS = 600
"""A folder that was used since is not removed because the disk is nearly full."""
LEFT_FREE, LEFT_FREE_BYTES = 0.05, 8 << 30
"""Share of the disk that is left to others, and bytes at most: with less of it free, each shard
that comes has others of its size make way, as far as there are any."""


@dataclass
class CacheStatistics:
    """What one process had of the cache so far.

    Attributes:
        hits: blobs of shards that were there.
        filled: blobs that were brought.
        filled_bytes: bytes that those take on disk.
        read_bytes: bytes that were read for that, as the index's files have them.
        evicted: blobs that made way for others.
        evicted_bytes: bytes of those.
        read_by_ranges: bytes of shards that were read to answer without them.
        lookup_bytes: of memory that lookups of included columns take now, of all indexes.
    """

    hits: int = 0
    filled: int = 0
    filled_bytes: int = 0
    read_bytes: int = 0
    evicted: int = 0
    evicted_bytes: int = 0
    read_by_ranges: int = 0
    lookup_bytes: int = 0


class LocalCache:
    """Folders filled once and then only read.

    A folder appears under its final name by a rename, so a reader never sees half of one and two
    processes that fill the same key both end with the same folder. Folders used longest ago are
    removed beyond `max_bytes`, but none that is held; one that a process has mapped stays readable
    until it lets go.

    Nothing that is wrong with the cache keeps anybody from searching: what cannot be kept is
    unpacked into a folder that is removed as soon as it is mapped, in the cache's folder or, where
    that cannot be written, in a temporary one.

    A folder that was cut short or changed since is filled again. That shows in its files' lengths
    and times, at each hit, and once a day by their checksums, in the background.

    Raises:
        CacheUnusableError: nothing at all can be written.
    """

    def __init__(self, root: Path | None = None, max_bytes: int | None = None) -> None:
        self.root, self._passing = (root, None) if root else _found_root()
        self.max_bytes = max_bytes or settings().cache_max_bytes
        self._corrupted = threading.Event()
        self._told: set[str] = set()
        self._used, self._look_again = 0, 0.0
        self.statistics = CacheStatistics()

    def key(self, where: str, look: Callable[[], str]) -> str:
        """Return the key of what lies at a place, looked up there once and then known.

        Args:
            where: names a place whose content never changes, such as a range of a table's file.
            look: returns the key of what is there; its content's, so that copies share one folder.
        """
        note = self.root / _NAMES / _hashed(where)
        with contextlib.suppress(OSError, ValueError):
            if belongs_to_us(note) and (known := note.read_text()):
                return known
        key = look()
        with contextlib.suppress(OSError):  # a read-only cache still serves
            note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            partial = note.with_suffix(f".{uuid.uuid4().hex}")
            partial.write_text(key)
            partial.replace(note)
        return key

    def has(self, where: str, key: str | None) -> bool:
        """Tell whether the content of a place is there, by a key that is given or was noted."""
        note = self.root / _NAMES / _hashed(where)
        with contextlib.suppress(OSError, ValueError):
            if key is None and belongs_to_us(note):
                key = note.read_text()
            return bool(key) and (self.root / _hashed(str(key)) / MARK).exists()
        return False

    @contextmanager
    def held(self, key: str, fill: Fill, size: int = 0) -> Iterator[Path]:
        """Give the folder of `key`, filled by `fill(folder)` if it is not there yet.

        Within the `with` block no process removes it to make room; open its files there.

        Args:
            key: names the content forever, and whose it is.
            fill: brings the content; what it raises but for an `OSError`, is raised.
            size: bytes that the content has at least, if that is known.

        Raises:
            EnvironmentProblemError: no local disk can be written.
        """
        with ExitStack() as stack:
            yield self._entered(key, fill, size, stack)

    @contextmanager
    def apart(self, fill: Fill, why: Exception) -> Iterator[Path]:
        """Give a folder outside of the cache, filled, which is removed after the body.

        Args:
            fill: as for `held`.
            why: what is wrong with the cache.

        Raises:
            EnvironmentProblemError: no local disk can be written.
        """
        self._tell(f"a shard is searched without the cache {self.root}: {why}")
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(
                    tempfile.TemporaryDirectory(
                        prefix="puffin-ann-shard-", ignore_cleanup_errors=True
                    )
                )
                fill(Path(folder))
            except OSError as error:
                raise EnvironmentProblemError(
                    f"a shard can be unpacked neither in {self.root}: {why}; nor in a temporary "
                    f"folder: {error}; free some room, or set PUFFIN_ANN_CACHE_DIR"
                ) from error
            yield Path(folder)

    def forget(self, folder: Path) -> None:
        """Remove a folder that turned out not to hold what was filled into it."""
        if not in_use.remove(folder) and os.path.lexists(folder):
            log.warning("%s cannot be removed", folder)

    def take_corrupted(self) -> bool:
        """Tell, once, whether a folder handed out was found corrupt since.

        It has to be asked for again.
        """
        if not self._corrupted.is_set():
            return False
        self._corrupted.clear()
        return True

    def _entered(self, key: str, fill: Fill, size: int, stack: ExitStack) -> Path:
        """Return the folder of a key, which is there until the stack is closed."""
        final = self.root / _hashed(key)
        try:
            with ExitStack() as attempt:
                renew_folder(self.root)
                folder = self._found(final, attempt) or self._filled(final, fill, size, attempt)
                stack.push(attempt.pop_all())
                return folder
        except (OSError, UnsafeFolderError, LocalCopyError) as error:
            if _is_hopeless(error, self.root):
                raise EnvironmentProblemError(
                    f"no room for a shard in {self.root}: {error}; free some, or set "
                    "PUFFIN_ANN_CACHE_DIR"
                ) from None
            return stack.enter_context(self.apart(fill, error))

    def _found(self, final: Path, stack: ExitStack) -> Path | None:
        """Return a folder, held, if it is there and as it was filled."""
        if not stack.enter_context(in_use.hold(final)):
            return None
        seal = Seal.of(final) if belongs_to_us(final) else None
        if seal is None or not seal.holds():
            log.warning("%s is not what was unpacked; it is unpacked again", final)
            self.forget(final)
            return None
        if seal.is_due():
            threading.Thread(
                target=self._prove, args=(seal,), name=f"check {final.name}", daemon=True
            ).start()
        with contextlib.suppress(OSError):  # a read-only cache still serves
            os.utime(final / MARK)
        self.statistics.hits += 1
        return final

    def _filled(self, final: Path, fill: Fill, size: int, stack: ExitStack) -> Path:
        """Return a new folder, held: under its final name if it can be kept, else until then."""
        self._free_disk(size)
        work = Path(tempfile.mkdtemp(prefix=_FILLING, dir=self.root))
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        stack.enter_context(in_use.hold(work))
        fill(work)
        Seal.put(work)
        self.statistics.filled += 1
        self.statistics.filled_bytes += _bytes_of(work)
        self.statistics.read_bytes += size
        if not self._make_room(_bytes_of(work)):
            if final not in _unkept:
                _unkept.add(final)
                log.error(
                    "a shard of %s bytes is searched without the cache %s: it does not fit beside "
                    "what is in use; raise PUFFIN_ANN_CACHE_MAX_BYTES, which is %s",
                    _bytes_of(work),
                    self.root,
                    self.max_bytes,
                )
            return work
        try:
            work.rename(final)
        except OSError:  # another process was first, or something is there that cannot be moved
            return self._found(final, stack) or work
        stack.callback(self._count_records, final, _bytes_of(final))
        return final

    def _count_records(self, folder: Path, size: int) -> None:
        """Count what came to a folder while it was held for the first time."""
        self._used += max(0, _bytes_of(folder) - size)

    def _prove(self, seal: Seal) -> None:
        """Compare checksums; on a thread of its own, since shards may be large."""
        try:
            if seal.proves():
                return
        except OSError as error:
            log.warning("%s cannot be read: %s", seal.folder, error)
        log.error("%s is not what was unpacked, by its checksums; it is removed", seal.folder)
        self.forget(seal.folder)
        self._corrupted.set()

    def _free_disk(self, size: int) -> None:
        """Have others make way for a shard of so many bytes where the disk is nearly full."""
        disk = shutil.disk_usage(self.root)
        left_free = min(LEFT_FREE_BYTES, int(LEFT_FREE * disk.total))
        short = size + left_free - disk.free
        if size and short > 0:
            self._tell(
                f"the disk of {self.root} is nearly full: shards there make way for others, and "
                "are brought again; free some room, or set PUFFIN_ANN_CACHE_DIR"
            )
            self._evict(min(size, short), one_for_one=True)

    def _make_room(self, size: int) -> bool:
        """Have others make way for a shard of so many bytes; returns whether it may be kept."""
        began = time.monotonic()
        if began >= self._look_again or self._used + size > NEARLY_FULL * self.max_bytes:
            self._remove_abandoned()
            self._used = sum(used for _, used, _ in self._entries())
            ended = time.monotonic()
            self._look_again = ended + LOOKS_SHARE * (ended - began)
        if size > self.max_bytes:
            return False
        short = size - self.max_bytes + self._used
        self._used += size
        return short <= 0 or self._evict(short) >= short

    def _evict(self, wanted: int, *, one_for_one: bool = False) -> int:
        """Remove folders used longest ago, and none that is held; returns the bytes freed.

        None is removed if all would not be enough. One for one, no more than is wanted is removed,
        and nothing that was used just now: a small shard would take the place of a large one, and
        the second shard of an index that of the first, until none is left.
        """
        freed, entries = 0, sorted(self._entries())
        if one_for_one:
            entries = [entry for entry in entries if entry[0] < time.time() - RECENT_SECONDS]
        elif sum(size for _, size, _ in entries) < wanted:
            return freed
        for used_at, size, folder in entries:
            if freed >= wanted:
                break
            if one_for_one and freed + size > wanted:
                continue
            if in_use.remove_unless_held(folder, used_at):
                freed += size
                self.statistics.evicted += 1
        self.statistics.evicted_bytes += freed
        return freed

    def _entries(self) -> list[tuple[float, int, Path]]:
        """Return, of each folder, when it was used last, its bytes and its path.

        Bytes are those of all files: records came after it was sealed.
        """
        entries: list[tuple[float, int, Path]] = []
        for mark in self.root.glob(f"*/{MARK}"):
            if not mark.parent.name.startswith((_FILLING, in_use.GONE)):
                with contextlib.suppress(OSError):
                    entries.append((mark.stat().st_mtime, _bytes_of(mark.parent), mark.parent))
        return entries

    def _remove_abandoned(self) -> None:
        """Remove notes of folders that are gone, and what processes left behind that have ended.

        They may have died while they removed a folder or, a day later, while they filled one.
        """
        for note in (self.root / _NAMES).glob("*"):
            with contextlib.suppress(OSError, ValueError):
                if not (self.root / _hashed(note.read_text())).exists():
                    note.unlink()
        for folder in self.root.glob(f"{in_use.GONE}*"):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in self.root.glob(f"{_FILLING}*"):
            with contextlib.suppress(OSError):
                made_at = folder.stat().st_mtime
                if time.time() - made_at > _ABANDONED_SECONDS:
                    in_use.remove_unless_held(folder, made_at)

    def _tell(self, problem: str) -> None:
        """Tell of a problem, once: the next shard has the same, and each waits to be brought."""
        if problem not in self._told:
            self._told.add(problem)
            log.error("%s", problem)


def _found_root() -> "tuple[Path, tempfile.TemporaryDirectory[str] | None]":
    """Return the folder for shards; one for this process alone where no other can be had."""
    try:
        return cache_folder("shards"), None
    except CacheUnusableError as error:
        try:
            passing = tempfile.TemporaryDirectory(
                prefix="puffin-ann-shards-", ignore_cleanup_errors=True
            )
        except OSError:
            raise CacheUnusableError(f"shards are searched from local disk, and {error}") from None
        log.error("shards are unpacked for this process alone: %s", str(error))
        return Path(passing.name), passing


def _is_hopeless(error: Exception, root: Path) -> bool:
    """Tell whether a temporary folder would be just as full."""
    if not isinstance(error, OSError) or error.errno not in _NO_ROOM:
        return False
    with contextlib.suppress(OSError):
        return os.stat(root).st_dev == os.stat(tempfile.gettempdir()).st_dev
    return False


def _bytes_of(folder: Path) -> int:
    """Return the bytes of a folder's files but for its seal; one that vanishes has none."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            if name == MARK:
                continue
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
