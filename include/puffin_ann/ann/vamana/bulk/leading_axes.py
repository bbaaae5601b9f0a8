"""Rows along the axes in which they vary most: half the numbers, and nearly the same distances.

A graph is built by very many comparisons, of which none need be exact: searches measure distances
by whole rows. Wide rows vary little in many directions of their space, and those are left out.
Which rows are near is found by still fewer axes; of what the others would add to a distance the two
squared lengths remain.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas
from puffin_ann.ann.core.memmap import new_array, read_only
from puffin_ann.ann.graph.primitives import LANES

SHARE = 0.95
"""Of the variance, which all axes keep at least: with 0.9, neighbours are chosen less well."""
SHARE_OF_FEW = 0.9
"""Which the first few keep. Both were chosen on sentences that no benchmark is scored on."""
WIDE = 256
"""Numbers in a row from which on it pays: narrower ones vary more alike in all directions, and a
graph of word vectors at 100 answers a twentieth slower for it."""
WORTH = 0.75
"""Few axes, as a share of the numbers in a row, up to which finding them pays."""
SAMPLED = 8
"""Rows looked at for each number in one."""
ROWS = 32
"""Rows for each number in one from which on it pays: finding axes takes the cube of that number."""
BLOCK = 2048
LEADING = "leading.npy"
"""Of the folder that a shard is built in; without a name as soon as it is mapped."""


class Leading:
    """Rows along their leading axes, or as they are if few axes would not do.

    Attributes:
        rows: `(n, a) float32`, read-only.
        few: axes, the first ones, by which near rows are found.
        rest: `(n,) float32`, squared length of what those leave out, around the mean.
    """

    def __init__(
        self,
        rows: NDArray[np.float32],
        few: int | None = None,
        rest: NDArray[np.float32] | None = None,
    ) -> None:
        self.rows = read_only(rows)
        self.few = rows.shape[1] if few is None else few
        self.rest = np.zeros(len(rows), np.float32) if rest is None else rest


def of_rows(
    space: NDArray[np.float32], taking_part: NDArray[np.uint32], folder: Path | None, threads: int
) -> Leading:
    """Bring rows onto the axes that keep most of their variance.

    Args:
        space: `(n, w) float32`; may be memory-mapped.
        taking_part: `(m,) uint32`, the rows that axes are chosen by, ascending.
        folder: for the file that holds them, whose pages need not stay in memory; None keeps them.
        threads: threads to use; nothing depends on it.
    """
    dim = space.shape[1]
    if dim < WIDE or len(taking_part) < ROWS * dim:
        return Leading(space)
    places = np.linspace(0, len(taking_part) - 1, SAMPLED * dim).astype(np.int64)
    with blas.single_thread():
        mean, axes, few = _axes(space[taking_part[places]])
        if few > WORTH * dim:
            return Leading(space)
        leading = _empty((len(space), axes.shape[1]), folder)
        rest = np.empty(len(space), np.float32)

        def bring(first: int) -> None:
            part = slice(first, first + BLOCK)
            moved, out = space[part] - mean, leading[part]
            # Rows so long that squares leave float32 are near no other, or all, whatever the axes.
            with np.errstate(over="ignore", invalid="ignore"):
                np.dot(moved, axes, out=out)
                kept = out[:, :few]
                left = np.einsum("ij,ij->i", moved, moved) - np.einsum("ij,ij->i", kept, kept)
                np.fmax(left, 0, out=rest[part])

        for _ in blas.parallel(bring, range(0, len(space), BLOCK), threads):
            pass
    return Leading(leading, few, rest)


def _axes(sample: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32], int]:
    """Return the mean of rows, their leading axes, `(w, a) float32`, and how many are few."""
    wide = sample.astype(np.float64)
    mean = wide.mean(axis=0)
    wide -= mean
    spread, axes = np.linalg.eigh(wide.T @ wide)
    kept = np.cumsum(spread[::-1])

    def wanted(share: float) -> int:
        """Return how many axes keep a share, in whole vectors."""
        count = int(np.searchsorted(kept, share * kept[-1])) + 1
        return min(-(-count // LANES) * LANES, len(kept))

    leading = np.ascontiguousarray(axes[:, ::-1][:, : wanted(SHARE)], np.float32)
    return mean.astype(np.float32), leading, wanted(SHARE_OF_FEW)


def _empty(shape: tuple[int, int], folder: Path | None) -> NDArray[np.float32]:
    if folder is None:
        return np.empty(shape, np.float32)
    path = folder / LEADING
    array = new_array(path, np.float32, shape).view(np.ndarray)
    path.unlink()
    return array
