"""What rows are brought into before signs are taken of their numbers."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import Metric
from puffin_ann.ann.exact.row_addresses import RowAddresses

WIDE = 256
"""Numbers in a row from which on one bit of each is taken: its error is that of two at a quarter of
the width."""

STEP, STEP_WIDE = 16, 64
"""Rows are filled up to a multiple of so many numbers, and wide ones of more: `kernels_rotate.mix`
takes long if their number has a large odd factor."""

ORIGIN_ROWS = 1024
FAR = 16.0
"""Times the square of most rows, that of one which the origin takes no notice of."""


class Frame(NamedTuple):
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

    @property
    def wide(self) -> int:
        """Numbers that rows are filled up to, w."""
        return len(self.origin)

    @property
    def middle(self) -> float:
        """Squared, how far from zero the origin is."""
        return float(np.square(self.origin.astype(np.float64)).sum())


def frame_of(rows: RowAddresses, metric: Metric) -> Frame:
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
    return Frame(origin, flips, flips_between / np.float32(wide // parts), _hartley(parts))


def width_of(dimension: int) -> int:
    """Return how many numbers rows are filled up to."""
    step = STEP if dimension < WIDE else STEP_WIDE
    return -(-dimension // step) * step


def bits_of(wide: int) -> int:
    """Return the bits of each number of rows that are so wide."""
    return 1 if wide >= WIDE else 2


def _placed(some: NDArray[np.float32], metric: Metric) -> NDArray[np.float32]:
    """Return rows as they are compared: by cosine, their directions."""
    if metric.name != "cosine":
        return some
    norms = np.linalg.norm(some.astype(np.float64), axis=1, keepdims=True)
    directions = np.divide(some, norms, out=np.zeros(some.shape), where=norms > 0.0)
    return np.asarray(directions, np.float32)


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
