"""The nearest rows of each query, found in parts of all rows by threads of their own."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas
from puffin_ann.ann.core.types import Answers
from puffin_ann.ann.exact.kernels_coding import BLOCK
from puffin_ann.ann.exact.kernels_scan import answers

ROWS_WORTH_A_THREAD = 16384

Look = Callable[[int, int, NDArray[np.uint64], NDArray[np.int64]], None]
"""(first row, where they end, (q, c) heaps, (q,) their sizes): brings rows into the heaps."""


def nearest_in(
    look: Look, rows: int, queries: int, k: int, threads: int, *, block: int = BLOCK
) -> Answers:
    """Return the k nearest rows of each query, padded with −1 and infinity.

    Args:
        look: brings a part of the rows, which begins with a block, into heaps; not called if
            nothing is wanted.
        rows: that there are.
        queries: q.
        k: neighbours.
        threads: to use.
        block: rows in a block.
    """
    parts = max(1, min(threads, rows // ROWS_WORTH_A_THREAD))
    heaps = np.empty((parts, queries, min(k, rows)), np.uint64)
    sizes = np.zeros((parts, queries), np.int64)
    if heaps.size and parts == 1:
        look(0, rows, heaps[0], sizes[0])
    elif heaps.size:
        cuts = [rows * part // parts // block * block for part in range(parts)]

        def look_at(part: tuple[int, tuple[int, int]]) -> None:
            number, (first, last) = part
            look(first, last, heaps[number], sizes[number])

        for _ in blas.parallel(look_at, enumerate(pairwise([*cuts, rows])), threads):
            pass
    found = np.empty((queries, k), np.int64), np.empty((queries, k), np.float32)
    answers(heaps, sizes, *found)
    return found
