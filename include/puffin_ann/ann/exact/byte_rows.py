"""Rows by a byte a number, to rule out by a quarter of the memory which are not the nearest."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import Metric, frozen
from puffin_ann.ann.core.types import Answers
from puffin_ann.ann.exact import kernels_coding as coding
from puffin_ann.ann.exact.kernels_coding import BLOCK
from puffin_ann.ann.exact.kernels_compare import compare
from puffin_ann.ann.exact.kernels_scan import LARGE
from puffin_ann.ann.exact.nearest_in import nearest_in
from puffin_ann.ann.exact.row_addresses import RowAddresses

AT_ONCE = 1024
"""Queries that are compared in one go, at most, a multiple of 8."""
NOTED = 256
"""Rows that are noted of a query, and k more, before those that may be near are measured."""

_ALL = np.empty(0, np.float32)
"""How far rows may be, where all are wanted."""


@dataclass(frozen=True, eq=False)
class ByteRows:
    """Rows, each by its codes, which are multiples of its step.

    Attributes:
        metric: of the rows.
        rows: as they are.
        codes: (b, g, 16) uint32, four numbers of each of sixteen rows, a byte a number.
        sides: (b, 4, 16) float32, what is known of each row beside them: see `kernels_coding`.
        bits: (b,) uint16, which of the rows of each block there are.
        longest: norm of a row, at most.
        doubt: how far a row is from what its codes say, at most.
    """

    metric: Metric
    rows: RowAddresses
    codes: NDArray[np.uint32]
    sides: NDArray[np.float32]
    bits: NDArray[np.uint16]
    longest: float
    doubt: float

    @classmethod
    def of(cls, rows: RowAddresses, metric: Metric) -> "ByteRows | None":
        """Code rows, or tell that codes say nothing of one: it is too long for squares, or short.

        Args:
            rows: finite, of at least one number; kept.
            metric: that they will be compared by.
        """
        blocks, groups = -(-len(rows) // BLOCK), -(-rows.dimension // 4)
        codes = np.empty((blocks, groups, BLOCK), np.uint32)
        sides = np.empty((blocks, coding.SIDES, BLOCK), np.float32)
        wide = -(-rows.dimension // 16) * 16
        row, line = np.zeros(wide, np.float32), np.empty(wide // 4, np.uint32)
        coding.write_blocks(metric.code, rows.starts, rows.dimension, row, line, codes, sides)
        longest = float(sides[:, coding.LENGTH].max(initial=0.0))
        doubt = float(sides[:, coding.DOUBT].max(initial=0.0))
        if not longest**2 < LARGE or not doubt < np.inf:
            return None
        bits = bits_of(np.ones(len(rows), np.bool_))
        return cls(metric, rows, codes, sides, bits, longest * coding.ROUNDED_UP, doubt)

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return self.codes.nbytes + self.sides.nbytes + self.rows.starts.nbytes

    def nearest(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        bits: NDArray[np.uint16] | None = None,
        within: NDArray[np.float32] | None = None,
        threads: int = 1,
    ) -> Answers | None:
        """Return the k nearest rows of each query, exactly; see `brute_force.search`.

        It is None if a query is too long for what is computed of it.

        Args:
            queries: (q, d) float32, finite.
            k: neighbours.
            bits: `bits_of` the rows that may be answered; None if all may.
            within: (q,) float32, distances beyond which rows are not wanted; None: all are.
            threads: to use.
        """
        too_long: list[bool] = []
        near = _ALL if within is None else np.ascontiguousarray(within, np.float32)
        bits = self.bits if bits is None else bits
        look = partial(self._look, frozen(queries), near, bits, too_long)
        found = nearest_in(look, len(self.rows), len(queries), k, threads)
        return None if too_long else found

    def _look(
        self,
        queries: NDArray[np.float32],
        within: NDArray[np.float32],
        bits: NDArray[np.uint16],
        too_long: list[bool],
        first: int,
        last: int,
        heaps: NDArray[np.uint64],
        sizes: NDArray[np.int64],
    ) -> None:
        """Bring rows into the heaps of the nearest, or note that a query is too long."""
        if not compare(
            self.metric.code, queries, within, AT_ONCE, NOTED, self.rows.starts, self.codes,
            self.sides, self.longest, self.doubt, bits, first // BLOCK, -(-last // BLOCK),
            heaps, sizes,
        ):  # fmt: skip
            too_long.append(True)


def size_of_codes(rows: int, dimension: int) -> int:
    """Return the bytes of the codes of rows, and of what is known beside them."""
    blocks, groups = -(-rows // BLOCK), -(-dimension // 4)
    return blocks * BLOCK * 4 * (groups + coding.SIDES) + 8 * rows


def bits_of(allowed: NDArray[np.bool_]) -> NDArray[np.uint16]:
    """Return the bits of the rows of each block, (b,), that may be answered, of (n,) bool."""
    packed = np.zeros(-(-len(allowed) // BLOCK) * (BLOCK // 8), np.uint8)
    some = np.packbits(allowed, bitorder="little")
    packed[: len(some)] = some
    return packed.view("<u2").astype(np.uint16, copy=False)
