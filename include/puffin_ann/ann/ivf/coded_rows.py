"""The wide rows of lists by a byte a number, beside their vectors: what they take, and making them.

A scan leaves far more candidates than are answered. Of wide rows, to read each of those as it is
stored takes longer than the scan; so they are read by a byte a number first, and as they are stored
only where they may be answered, see `kernels_coded`.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.memmap import read_only
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.ivf import kernels_coded as kernels

WIDE = 256
"""Numbers in a row from which on it is there by a byte a number."""
FORM = 1
"""To be raised when coded rows change: folders outlive a version of this package."""
CODED_ROWS = f"coded-rows-{FORM}.npy"
"""File of a shard's folder."""
MADE_ROWS = 4096
_NONE = read_only(np.zeros(0, np.float32))


def is_wide(dimension: int) -> bool:
    """Return whether rows of so many numbers are there by a byte a number."""
    return dimension >= WIDE


def stride_of(dimension: int) -> int:
    """Return how many bytes a row of so many numbers takes."""
    stride: int = kernels.stride_of.py_func(dimension)  # type: ignore[attr-defined]
    return stride


def code_rows(
    metric: str,
    vectors: NDArray[np.float32],
    origin: NDArray[np.float32],
    inverse_norms: NDArray[np.float32] | None = None,
) -> Iterator[NDArray[np.uint8]]:
    """Give the coded rows, `(m, stride) uint8`, in pieces.

    Args:
        metric: name.
        vectors: `(n, d) float32`, as stored; may be memory-mapped.
        origin: `(d,) float32`, of the lists.
        inverse_norms: `(n,) float32`, for cosine; see `search.inverse_norms`.
    """
    stride = stride_of(vectors.shape[1])
    norms = _NONE if inverse_norms is None else read_only(inverse_norms)
    for at in range(0, len(vectors), MADE_ROWS):
        part = slice(at, at + MADE_ROWS)
        block = read_only(vectors[part])
        out = np.zeros((len(block), stride), np.uint8)
        kernels.write_coded_rows(
            METRICS[metric].code, block, read_only(origin), norms[part], out.reshape(-1)
        )
        yield out
