"""Rows by a byte a number, to rule out by a quarter of the memory which are not the nearest."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import Metric, frozen
from puffin_ann.ann.exact import kernels_coding as coding
from puffin_ann.ann.exact import kernels_products as products
from puffin_ann.ann.exact.kernels_coding import BLOCK
from puffin_ann.ann.exact.kernels_compare import compare
from puffin_ann.ann.exact.kernels_scan import LARGE, LARGE_PRODUCT

AT_ONCE = 1024
"""Queries that are compared in one go, at most, a multiple of 8."""
NOTES_BYTES = 16 << 20
"""What may be noted of these, if they are more than 8."""
NOTED = 256
"""Rows that are noted of a query, and k more, before those that may be near are measured."""


@dataclass(frozen=True, eq=False)
class ByteRows:
    """Rows, each by its codes, which are multiples of its step.

    Attributes:
        metric: of the rows.
        vectors: (n, d) float32.
        codes: (b, g, 16) uint32, four numbers of each of sixteen rows, a byte a number.
        sides: (b, 4, 16) float32, what is known of each row beside them: see `kernels_coding`.
        bits: (b,) uint16, which of the rows of each block there are.
        longest: norm of a row, at most.
        doubt: how far a row is from what its codes say, at most.
    """

    metric: Metric
    vectors: NDArray[np.float32]
    codes: NDArray[np.uint32]
    sides: NDArray[np.float32]
    bits: NDArray[np.uint16]
    longest: float
    doubt: float

    @classmethod
    def of(
        cls, vectors: NDArray[np.float32], squares: NDArray[np.float64], metric: Metric
    ) -> "ByteRows | None":
        """Code rows, or tell that codes say nothing of one: it is too long for squares, or short.

        Args:
            vectors: (n, d) float32, finite, of at least one number; kept.
            squares: (n,) float64, squared norms.
            metric: that they will be compared by.
        """
        rows, dimension = vectors.shape
        blocks = -(-rows // BLOCK)
        codes = np.empty((blocks, -(-dimension // 4), BLOCK), np.uint32)
        sides = np.empty((blocks, coding.SIDES, BLOCK), np.float32)
        wide = -(-dimension // 16) * 16
        row, line = np.zeros(wide, np.float32), np.empty(wide // 4, np.uint32)
        coding.write_blocks(metric.code, frozen(vectors), squares, row, line, codes, sides)
        largest = float(squares.max(initial=0.0))
        doubt = float(sides[:, coding.DOUBT].max(initial=0.0))
        if not largest < LARGE or not doubt < np.inf:
            return None
        bits, longest = bits_of(np.ones(rows, np.bool_)), float(np.sqrt(largest))
        return cls(metric, vectors, codes, sides, bits, longest, doubt)


@dataclass(frozen=True, eq=False)
class ByteQueries:
    """Queries, coded to be compared with rows.

    Attributes:
        rows: those.
        queries: (q, d) float32.
        words: (t, g) uint32, t a multiple of 8: four numbers each, a byte a number.
        asked: (t, 4) float64, what is known of each query beside them.
        bits: (b,) uint16, of the rows of each block that may be answered.
        within: (q,) float32, distances beyond which rows are not wanted.
    """

    rows: ByteRows
    queries: NDArray[np.float32]
    words: NDArray[np.uint32]
    asked: NDArray[np.float64]
    bits: NDArray[np.uint16]
    within: NDArray[np.float32]

    @classmethod
    def of(
        cls,
        rows: ByteRows,
        queries: NDArray[np.float32],
        bits: NDArray[np.uint16] | None,
        within: NDArray[np.float32] | None = None,
    ) -> "ByteQueries | None":
        """Code queries, or tell that one is too long for what is computed of it.

        Args:
            rows: that they will be compared with.
            queries: (q, d) float32, finite.
            bits: `bits_of` the rows that may be answered; None if all may.
            within: (q,) float32, distances beyond which rows are not wanted; None: all are.
        """
        taken = -(-len(queries) // products.TILE) * products.TILE
        words = np.empty((taken, rows.codes.shape[1]), np.uint32)
        asked = np.empty((taken, coding.ASKED))
        coding.write_queries(queries, words, asked)
        square = float(asked[:, coding.SQUARE].max(initial=0.0))
        if not square < LARGE or not square * rows.longest**2 < LARGE_PRODUCT:
            return None
        near = np.full(len(queries), np.inf) if within is None else within
        near = np.ascontiguousarray(near, np.float32)
        return cls(rows, queries, words, asked, rows.bits if bits is None else bits, near)

    def offer(
        self, rows: tuple[int, int], heaps: NDArray[np.uint64], sizes: NDArray[np.int64]
    ) -> None:
        """Bring a range of rows, which begins and ends with blocks, into the heaps of the nearest.

        Args:
            rows: from one up to another.
            heaps: (q, k) uint64, changed; k is at least 1.
            sizes: (q,) int64, changed.
        """
        coded, k = self.rows, heaps.shape[1]
        at_once = min(AT_ONCE, max(1, NOTES_BYTES // (20 * (NOTED + k)) // 8) * 8)
        most, taken = min(at_once, len(self.queries)), min(at_once, len(self.words))
        mosts, limits = np.empty((most, k)), np.empty(most)
        found, lows = np.empty((most, NOTED + k), np.uint32), np.empty((most, NOTED + k))
        used, starts = np.empty(most, np.int64), np.empty(taken, np.int32)
        lines, room = np.zeros((taken, 3), np.float32), np.empty(products.PRODUCTS, np.float32)
        for at in range(0, len(self.queries), at_once):
            part = slice(at, at + at_once)
            compare(
                coded.metric.code,
                self.queries[part],
                self.words[part],
                self.asked[part],
                self.within[part],
                mosts,
                found,
                lows,
                used,
                limits,
                lines,
                starts,
                room,
                frozen(coded.vectors),
                coded.codes,
                coded.sides,
                coded.longest,
                coded.doubt,
                self.bits,
                rows[0] // BLOCK,
                -(-rows[1] // BLOCK),
                heaps[part],
                sizes[part],
            )


def size_of_codes(rows: int, dimension: int) -> int:
    """Return the bytes of the codes of rows, and of what is known beside them."""
    blocks, groups = -(-rows // BLOCK), -(-dimension // 4)
    return blocks * BLOCK * 4 * (groups + coding.SIDES)


def bits_of(allowed: NDArray[np.bool_]) -> NDArray[np.uint16]:
    """Return the bits of the rows of each block, (b,), that may be answered, of (n,) bool."""
    packed = np.zeros(-(-len(allowed) // BLOCK) * (BLOCK // 8), np.uint8)
    some = np.packbits(allowed, bitorder="little")
    packed[: len(some)] = some
    return packed.view("<u2").astype(np.uint16, copy=False)
