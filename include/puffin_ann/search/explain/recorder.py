"""Notes of one search, for whoever asks how it was answered; nobody else pays for them.

Whatever takes part asks `current()` for the recorder: there is none unless a search is explained.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from puffin_ann.search.explain.explanation import ConditionFacts, ShardWay, Way
from puffin_ann.search.explain.stages import Stages

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


class Recorder(Stages):
    """What is known of a search so far; threads of one search may add shards at the same time.

    Attributes:
        ways_expected: seconds that each way through all shards was expected to take; empty as long
            as none had to be chosen.
        queries_sharing: queries among which those deal out what is done once.
        condition: how the rows of a condition were found; None as long as there is none.
        files_scanned: data files with rows outside the index that were compared.
        vector_bytes_scanned: bytes of vectors, as float32, that were read to compare rows that are
            not in shards.
    """

    def __init__(self) -> None:
        super().__init__("check what is asked")
        self._lock = threading.Lock()
        self._shards: list[tuple[int, ShardWay]] = []
        self._turn = 0
        self.ways_expected: Mapping[Way, float] = {}
        self.queries_sharing = 0
        self.condition: ConditionFacts | None = None
        self.files_scanned = self.vector_bytes_scanned = 0

    def begin_turn(self) -> None:
        """Say that shards are asked, perhaps again: those added before were asked before."""
        self._turn += 1

    def add_shard(self, way: ShardWay) -> None:
        """Note how a shard was searched."""
        with self._lock:
            self._shards.append((self._turn, way))

    def begin_again(self) -> None:
        """Forget how shards were searched: the search is made again; its time was spent."""
        self._shards.clear()
        self.ways_expected, self.queries_sharing = {}, 0
        self.condition, self.files_scanned, self.vector_bytes_scanned = None, 0, 0

    @property
    def shards(self) -> tuple[ShardWay, ...]:
        """How each shard was searched: by turns, then by ids; in a turn first all in one go."""

        def place(noted: tuple[int, ShardWay]) -> tuple[int, int]:
            turn, way = noted
            return turn, -1 if way.shard_id is None else way.shard_id

        return tuple(way for _, way in sorted(self._shards, key=place))


@contextmanager
def recording(recorder: Recorder | None) -> Iterator[None]:
    """Have this thread's search noted."""
    token = _CURRENT.set(recorder)
    try:
        yield
    finally:
        _CURRENT.reset(token)
