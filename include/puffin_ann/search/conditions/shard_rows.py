"""The rows of one shard that may be answered: a mask, their number, and themselves if few."""

import threading
from collections.abc import Callable
from functools import cached_property
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.core.types import Answers
from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.ann.exact.kernels_coding import BLOCK
from puffin_ann.ann.signs.row_codes import RowCodes
from puffin_ann.ann.signs.selected_rows import SelectedRows
from puffin_ann.engines import SearchableShard
from puffin_ann.search.conditions.decisions import Decisions
from puffin_ann.search.conditions.expected import Expected, note_gathering, of_gathered
from puffin_ann.search.conditions.gathered import GATHERED_BYTES


class _Gathered(NamedTuple):
    """Rows that are compared alone.

    Attributes:
        ordinals: (m + 1,) int64; the last is -1, which place -1, where there is no answer, takes.
        rows: to be compared.
    """

    ordinals: NDArray[np.int64]
    rows: SelectedRows


class ShardRows:
    """Rows of a shard that may be answered; made of a mask of the others, or of their ordinals.

    Any number of threads use it.

    Args:
        rows: n, of the shard.
        count: how many may be answered.
        excluded: (n,) bool, the others; None: made when it is asked for.
        ordinals: (m,) of whole numbers, ascending; None as well. One of the two is given.

    Attributes:
        count: as given.
        decisions: whether to compare them was found to cost less than to search past the others.
        may_be_kept: whether they were not found to take too much when they were gathered.
        when_grown: is called when it takes more bytes than before.
    """

    def __init__(
        self,
        rows: int,
        count: int,
        excluded: NDArray[np.bool_] | None = None,
        ordinals: NDArray[np.integer[Any]] | None = None,
    ) -> None:
        self._rows, self.count = rows, count
        self._excluded, self._ordinals = excluded, ordinals
        self._gathered: _Gathered | None = None
        self.may_be_kept = True
        self._lock = threading.Lock()
        self.decisions = Decisions()
        self.when_grown: Callable[[], None] | None = None

    @classmethod
    def of(cls, excluded: NDArray[np.bool_]) -> "ShardRows":
        """Return the rows that a mask leaves."""
        return cls(len(excluded), len(excluded) - int(np.count_nonzero(excluded)), excluded)

    @classmethod
    def among(cls, rows: int, ordinals: NDArray[np.integer[Any]]) -> "ShardRows":
        """Return some of a shard's rows, (m,) of whole numbers, ascending."""
        form = np.uint32 if rows <= np.iinfo(np.uint32).max else np.int64
        return cls(rows, len(ordinals), ordinals=ordinals.astype(form))

    @property
    def excluded(self) -> NDArray[np.bool_]:
        """(n,) bool, the others, the same array each time. Not to be changed: engines know it."""
        if self._excluded is not None:
            return self._excluded
        with self._lock:
            excluded = self._excluded
            if excluded is None:
                excluded = np.ones(self._rows, np.bool_)
                excluded[self._ordinals] = False
                self._excluded = excluded
        self._tell()
        return excluded

    @property
    def ordinals(self) -> NDArray[np.int64]:
        """(m,) int64, ascending."""
        if self._ordinals is None:
            return np.flatnonzero(~self.excluded)
        return self._ordinals.astype(np.int64)

    @cached_property
    def rows_beside(self) -> int:
        """Rows of the blocks that hold any of them: they are compared if they are not gathered."""
        blocks = self.ordinals // BLOCK  # which ascend
        return BLOCK * int(np.count_nonzero(np.diff(blocks, prepend=-1)))

    @property
    def is_gathered(self) -> bool:
        """Whether they are gathered already."""
        return self._gathered is not None

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        gathered = self._gathered
        arrays = [self._excluded, self._ordinals, gathered and gathered.ordinals]
        beside = gathered.rows.size if gathered else 0
        return beside + sum(array.nbytes for array in arrays if array is not None)

    def nearest(
        self,
        shard: SearchableShard,
        queries: NDArray[np.float32],
        k: int,
        threads: int,
        known: RowCodes,
    ) -> Answers:
        """Return the k nearest of these rows by comparing them alone; see `SelectedRows`."""
        ordinals, rows = self._gathered or self._gather(shard, len(queries), k, known)
        places, distances = rows.nearest(queries, k, threads=threads)
        return ordinals[places], distances

    def expected(self, dimension: int, queries: int, known: RowCodes) -> Expected:
        """Return what `nearest` is expected to take with so many queries.

        Args:
            dimension: of the vectors.
            queries: asked at once.
            known: see `nearest`.
        """
        gathered = self._gathered
        coding = None if gathered is None else gathered.rows.codings(queries)
        return of_gathered(self.count, dimension, queries, 1, coding, known)

    def _gather(self, shard: SearchableShard, queries: int, k: int, known: RowCodes) -> _Gathered:
        began, before, ordinals = perf_counter(), known.share, self.ordinals
        rows = SelectedRows([shard.find_vectors(ordinals)], METRICS[shard.metric], known=known)
        rows.prepare(queries, k)
        seconds = perf_counter() - began
        by_signs = rows.codings(queries, k)[0] is Coding.SIGNS
        note_gathering(len(rows), shard.dimension, 1, seconds, before, by_signs=by_signs)
        gathered = _Gathered(np.append(ordinals, -1), rows)
        self.may_be_kept = rows.size <= GATHERED_BYTES
        if self.may_be_kept:
            self._gathered = gathered
            self._tell()
        return gathered

    def _tell(self) -> None:
        if self.when_grown is not None:
            self.when_grown()
