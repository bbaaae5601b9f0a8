"""Rows by a bit or two of each number, to rule out by a fraction of the memory most far ones."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import Metric, frozen
from puffin_ann.ann.core.types import Answers
from puffin_ann.ann.exact.nearest_in import ROWS_WORTH_A_THREAD, nearest_in
from puffin_ann.ann.exact.row_addresses import RowAddresses
from puffin_ann.ann.signs.frame import WIDE, Frame, bits_of, frame_of, width_of
from puffin_ann.ann.signs.kernels_blocks import TAIL_BYTES, pack_blocks
from puffin_ann.ann.signs.kernels_nearest import LONGEST, SHORTEST, compare
from puffin_ann.ann.signs.row_codes import Records, RowCodes, record_rows
from puffin_ann.ann.simd.fastscan import BLOCK

NARROWEST = 80
"""Numbers in a row from which on so few bits tell enough of it."""

LEAST_NUMBERS = 1 << 20
"""Numbers in all rows from which on they are compared by signs sooner than by a byte a number."""
FEW, FEW_WIDE = 7, 15
"""Queries at once of which that is so, and of rows from a width on: more queries share what it
takes to read a byte a number, while they do not share which rows are measured."""
FEW_TO_BEGIN, FEW_TO_BEGIN_WIDE = 128, 384
"""The same of rows with shared signs that nobody asked before. To put known signs in order takes a
third to a fifth of what it takes to make codes of a byte a number, which a query of a batch is
compared by in half of the time, or nearly as long from a width on; and signs that are made now are
there for further conditions."""
ROWS_FOR_ONE = 256
"""Rows of which there are at least so many for each that is wanted, where signs rule out most."""

LINE = 64
"""Bytes of a cache line."""

ROWS_FOR_A_THREAD = 1 << 17
"""Rows that take a query as long as it takes to have another thread look at others."""

AT_ONCE = 1 << 13
"""Rows whose records are made at a time, where nobody keeps them."""


@dataclass(frozen=True, eq=False)
class SignRows:
    """Rows, each by the signs of its numbers.

    Attributes:
        metric: of the rows.
        rows: as they are.
        frame: that they were brought into.
        packed: flat uint8, see `kernels_blocks`.
    """

    metric: Metric
    rows: RowAddresses
    frame: Frame
    packed: NDArray[np.uint8]

    @classmethod
    def of(
        cls, rows: RowAddresses, metric: Metric, known: Records | None = None
    ) -> "SignRows | None":
        """Code rows, or tell that signs say nothing of them: one is too long, or all too short.

        Args:
            rows: finite, at least one; kept.
            metric: that they will be compared by.
            known: their records; None: they are made, relative to the middle of these rows alone.
        """
        frame = frame_of(rows, metric) if known is None else known.frame
        stride, longest = stride_of(frame.wide), 0.0
        packed = _from_a_line_on(-(-len(rows) // BLOCK) * stride)
        for begin in range(0, len(rows), AT_ONCE):
            if known is None:
                some = record_rows(rows.between(begin, begin + AT_ONCE), metric, frame)
            else:
                some = known.between(begin, begin + AT_ONCE)
            farthest = pack_blocks(
                metric.code, some.starts, frame.wide, bits_of(frame.wide), stride,
                packed[begin // BLOCK * stride :],
            )  # fmt: skip
            longest = max(longest, farthest)
        if not SHORTEST < longest < LONGEST or not frame.middle < LONGEST:
            return None
        return cls(metric, rows, frame, packed)

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return self.packed.nbytes + self.rows.starts.nbytes

    def nearest(
        self, queries: NDArray[np.float32], k: int, *, threads: int = 1
    ) -> tuple[Answers, int] | None:
        """Return the k nearest rows of each query but for a few in a thousand, and the work.

        That is how many rows were measured. Distances are exact, and as many rows are answered as
        there are. It is None if a query is too long for what is computed of it, or too short.

        Args:
            queries: (q, d) float32, finite.
            k: neighbours.
            threads: to use.
        """
        measured: list[int] = []
        look = partial(self._look, frozen(queries), measured)
        threads = threads_of(len(self.rows), len(queries), threads)
        found = nearest_in(look, len(self.rows), len(queries), k, threads, block=BLOCK)
        return None if min(measured, default=0) < 0 else (found, sum(measured))

    def _look(
        self,
        queries: NDArray[np.float32],
        measured: list[int],
        first: int,
        last: int,
        heaps: NDArray[np.uint64],
        sizes: NDArray[np.int64],
    ) -> None:
        """Bring rows into the heaps of the nearest, and note how many were measured."""
        wide = self.frame.wide
        measured.append(
            compare(
                self.metric.code, queries, self.rows.starts, self.frame, bits_of(wide), self.packed,
                stride_of(wide), first // BLOCK, -(-last // BLOCK), heaps, sizes,
            )
        )  # fmt: skip


def are_soonest(rows: int, dimension: int, queries: int) -> bool:
    """Tell whether so many queries at once are compared with rows sooner by signs than by codes."""
    few = FEW_WIDE if dimension >= WIDE else FEW
    return queries <= few and may_suit(rows, dimension)


def are_soonest_to_begin(rows: int, dimension: int, queries: int, shared: RowCodes | None) -> bool:
    """Tell the same of rows that are in no form yet, by the signs that they may have in common."""
    if shared is None or not shared.tell_enough:
        return are_soonest(rows, dimension, queries)
    few = FEW_TO_BEGIN_WIDE if dimension >= WIDE else FEW_TO_BEGIN
    return queries <= few and may_suit(rows, dimension)


def may_suit(rows: int, dimension: int) -> bool:
    """Tell whether any query is compared with so many rows by signs."""
    return dimension >= NARROWEST and rows * dimension >= LEAST_NUMBERS


def threads_of(rows: int, queries: int, threads: int) -> int:
    """Return how many of some threads are worth comparing so many queries with so many rows."""
    return max(1, min(threads, rows * queries // ROWS_FOR_A_THREAD, rows // ROWS_WORTH_A_THREAD))


def stride_of(wide: int) -> int:
    """Return the bytes of a block of rows of so many numbers."""
    return 4 * bits_of(wide) * wide + TAIL_BYTES


def size_of_signs(rows: int, dimension: int) -> int:
    """Return the bytes of so many rows by their signs, and of what is known beside them."""
    return -(-rows // BLOCK) * stride_of(width_of(dimension)) + 8 * rows


def _from_a_line_on(size: int) -> NDArray[np.uint8]:
    """Return so many bytes that begin with a cache line: what is read at once is then in one."""
    room = np.empty(size + LINE, np.uint8)
    at = -room.ctypes.data % LINE
    return room[at : at + size]
