"""Notes of one search, for whoever asks how it was answered; nobody else pays for them.

Whatever takes part asks `current()` for the recorder: there is none unless a search is explained.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter

from puffin_ann.search.explain.explanation import ConditionFacts, ShardWay, Stage

_CURRENT: ContextVar["Recorder | None"] = ContextVar("recorder", default=None)


def current() -> "Recorder | None":
    """Return what notes the search of this thread; None if nobody asked."""
    return _CURRENT.get()


def enter(stage: str) -> None:
    """Say that a stage of this thread's search begins, if it is noted."""
    recorder = _CURRENT.get()
    if recorder is not None:
        recorder.enter(stage)


def note_scanned_file() -> None:
    """Note that rows outside the index are compared in one more data file."""
    recorder = _CURRENT.get()
    if recorder is not None:
        recorder.files_scanned += 1


def note_vectors(count: int) -> None:
    """Note how many bytes of vectors were read to compare rows of data files."""
    recorder = _CURRENT.get()
    if recorder is not None:
        recorder.vector_bytes_scanned += count


class Recorder:
    """What is known of a search so far; threads of one search may add shards at the same time.

    Time is dealt out without a gap: each stage lasts until the next begins.

    Attributes:
        condition: how the rows of a condition were found; None as long as there is none.
        files_scanned: data files with rows outside the index that were compared.
        vector_bytes_scanned: bytes of vectors, as float32, that were read to compare rows that are
            not in shards.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._stage, self._since = "check what is asked", perf_counter()
        self._lock = threading.Lock()
        self._shards: list[ShardWay] = []
        self.condition: ConditionFacts | None = None
        self.files_scanned = self.vector_bytes_scanned = 0

    def enter(self, stage: str) -> None:
        """End a stage and begin another, or go on with one that was before."""
        now = perf_counter()
        spent = self._seconds.get(self._stage, 0.0) + now - self._since
        self._seconds[self._stage] = spent
        self._stage, self._since = stage, now

    def add_shard(self, way: ShardWay) -> None:
        """Note how a shard was searched."""
        with self._lock:
            self._shards.append(way)

    def begin_again(self) -> None:
        """Forget how shards were searched: the search is made again; its time was spent."""
        self._shards.clear()
        self.condition, self.files_scanned, self.vector_bytes_scanned = None, 0, 0

    @property
    def shards(self) -> tuple[ShardWay, ...]:
        """How each shard was searched, in the order of their ids."""
        return tuple(sorted(self._shards, key=lambda way: way.shard_id))

    def stages(self) -> tuple[Stage, ...]:
        """End the stage and return all, in the order in which they began first."""
        self.enter(self._stage)
        return tuple(Stage(name, seconds) for name, seconds in self._seconds.items())


@contextmanager
def recording(recorder: Recorder | None) -> Iterator[None]:
    """Have this thread's search noted."""
    token = _CURRENT.set(recorder)
    try:
        yield
    finally:
        _CURRENT.reset(token)
