"""Rows by a bit or two of each number, to rule out by a fraction of the memory most far ones."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import Metric, frozen
from puffin_ann.ann.core.types import Answers
from puffin_ann.ann.exact.nearest_in import nearest_in
from puffin_ann.ann.exact.row_addresses import RowAddresses
from puffin_ann.ann.signs.kernels_blocks import TAIL_BYTES, write_blocks
from puffin_ann.ann.signs.kernels_nearest import LONGEST, SHORTEST, compare
from puffin_ann.ann.simd.fastscan import BLOCK

NARROWEST = 80
"""Numbers in a row from which on so few bits tell enough of it."""

LEAST_NUMBERS = 1 << 20
"""Numbers in all rows from which on they are compared by signs sooner than by a byte a number."""
FEW, FEW_WIDE, WIDE = 7, 15, 256
"""Queries at once of which that is so, and of rows from a width on: more queries share what it
takes to read a byte a number, while they do not share which rows are measured."""
ROWS_FOR_ONE = 256
"""Rows of which there are at least so many for each that is wanted, where signs rule out most."""

STEP, STEP_WIDE = 16, 64
"""Rows are filled up to a multiple of so many numbers, and wide ones of more: `kernels_rotate.mix`
takes long if their number has a large odd factor."""

LINE = 64
"""Bytes of a cache line."""

ROWS_FOR_A_THREAD = 1 << 17
"""Rows that take as long as it takes to have another thread look at others."""

ORIGIN_ROWS = 1024
FAR = 16.0
"""Times the square of most rows, that of one which the origin takes no notice of."""


@dataclass(frozen=True, eq=False)
class Frame:
    """What rows are relative to, and how they are rotated; see `kernels_rotate.mix`.

    Attributes:
        origin: (w,) float32.
        flips: (w,) float32, 1 or -1, what each number is multiplied with first.
        flips_between: (w,) float32, the same after half of the way, but for a factor that makes all
            of it orthogonal.
        across: (m, m) float32, orthogonal.
    """

    origin: NDArray[np.float32]
    flips: NDArray[np.float32]
    flips_between: NDArray[np.float32]
    across: NDArray[np.float32]

    @classmethod
    def of(cls, rows: RowAddresses, metric: Metric) -> "Frame":
        """Return a frame for rows, at least one."""
        wide = width_of(rows.dimension)
        lines = wide // 16
        parts = lines // (lines & -lines)  # the odd factor
        generator = np.random.default_rng(0)
        chosen = np.linspace(0, len(rows) - 1, min(len(rows), ORIGIN_ROWS)).astype(np.int64)
        some = RowAddresses(rows.starts[chosen], rows.dimension, rows.held).copied()
        origin = np.zeros(wide, np.float32)
        origin[: rows.dimension] = _middle(_placed(some, metric))
        flips, flips_between = generator.choice(np.array([-1, 1], np.float32), (2, wide))
        return cls(origin, flips, flips_between / np.float32(wide // parts), _hartley(parts))


@dataclass(frozen=True, eq=False)
class SignRows:
    """Rows, each by the signs of its numbers.

    Attributes:
        metric: of the rows.
        rows: as they are.
        frame: that they were brought into.
        packed: flat uint8, see `kernels_blocks`.
        longest: squared, how far from the origin one is at most.
        middle: squared, how far from zero the origin is.
    """

    metric: Metric
    rows: RowAddresses
    frame: Frame
    packed: NDArray[np.uint8]
    longest: float
    middle: float

    @classmethod
    def of(cls, rows: RowAddresses, metric: Metric) -> "SignRows | None":
        """Code rows, or tell that signs say nothing of them: one is too long, or all too short.

        Args:
            rows: finite, at least one; kept.
            metric: that they will be compared by.
        """
        frame = Frame.of(rows, metric)
        wide = len(frame.origin)
        packed = _from_a_line_on(-(-len(rows) // BLOCK) * stride_of(wide))
        longest = write_blocks(
            metric.code, rows.starts, rows.dimension, frame.origin, frame.flips,
            frame.flips_between, frame.across, bits_of(wide), stride_of(wide), packed,
        )  # fmt: skip
        middle = float(np.square(frame.origin.astype(np.float64)).sum())
        if not SHORTEST < longest < LONGEST or not middle < LONGEST:
            return None
        return cls(metric, rows, frame, packed, longest, middle)

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
        threads = min(threads, len(self.rows) // ROWS_FOR_A_THREAD)
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
        frame = self.frame
        measured.append(
            compare(
                self.metric.code, queries, self.rows.starts, frame.origin, frame.flips,
                frame.flips_between, frame.across, bits_of(len(frame.origin)), self.longest,
                self.middle,
                self.packed, stride_of(len(frame.origin)), first // BLOCK, -(-last // BLOCK),
                heaps, sizes,
            )
        )  # fmt: skip


def are_soonest(rows: int, dimension: int, queries: int) -> bool:
    """Tell whether so many queries at once are compared with rows sooner by signs than by codes."""
    few = FEW_WIDE if dimension >= WIDE else FEW
    return dimension >= NARROWEST and rows * dimension >= LEAST_NUMBERS and queries <= few


def width_of(dimension: int) -> int:
    """Return how many numbers rows are filled up to."""
    step = STEP if dimension < WIDE else STEP_WIDE
    return -(-dimension // step) * step


def bits_of(wide: int) -> int:
    """Return the bits of each number: the error of one is that of two at a quarter of the width."""
    return 1 if wide >= WIDE else 2


def stride_of(wide: int) -> int:
    """Return the bytes of a block of rows of so many numbers."""
    return 4 * bits_of(wide) * wide + TAIL_BYTES


def size_of_signs(rows: int, dimension: int) -> int:
    """Return the bytes of so many rows by their signs, and of what is known beside them."""
    return -(-rows // BLOCK) * stride_of(width_of(dimension)) + 8 * rows


def _placed(some: NDArray[np.float32], metric: Metric) -> NDArray[np.float32]:
    """Return rows as they are compared: by cosine, their directions."""
    if metric.name != "cosine":
        return some
    norms = np.linalg.norm(some.astype(np.float64), axis=1, keepdims=True)
    directions = np.divide(some, norms, out=np.zeros(some.shape), where=norms > 0.0)
    return np.asarray(directions, np.float32)


def _from_a_line_on(size: int) -> NDArray[np.uint8]:
    """Return so many bytes that begin with a cache line: what is read at once is then in one."""
    room = np.empty(size + LINE, np.uint8)
    at = -room.ctypes.data % LINE
    return room[at : at + size]


def _middle(some: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the mean of rows, but of those that are much longer than most."""
    squares = np.square(some, dtype=np.float64).sum(axis=1)
    usual = squares <= FAR * np.median(squares)
    middle: NDArray[np.float64] = some[usual].mean(axis=0, dtype=np.float64)
    return middle


def _hartley(count: int) -> NDArray[np.float32]:
    """Return the matrix of Hartley's transform, whose numbers differ little in size.

    So it spreads what a row has in few places, as a random one of few lines would not.
    """
    angles = 2 * np.pi / count * np.outer(np.arange(count), np.arange(count))
    return np.asarray((np.cos(angles) + np.sin(angles)) / np.sqrt(count), np.float32)
