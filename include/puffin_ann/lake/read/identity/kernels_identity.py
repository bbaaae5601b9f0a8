"""The sums of row identities over vectors, compiled.

numpy's product of integers takes ten times as long, and to read a table that was rewritten is to
hash it.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.numba_kernels import kernel

_U64 = np.uint64


@kernel()
def add_words(
    words: NDArray[np.uint32],
    factors: NDArray[np.uint64],
    start: NDArray[np.uint64],
    sums: NDArray[np.uint64],
) -> None:
    """Write the sums of rows, modulo 2⁶⁴.

    Args:
        words: `(n, d) uint32`.
        factors: `(4, d) uint64`, of each lane.
        start: `(4,) uint64`, what each lane's sum begins with.
        sums: `(n, 4) uint64`, written.
    """
    for row in range(len(words)):
        first, second, third, fourth = start[0], start[1], start[2], start[3]
        for i in range(words.shape[1]):
            word = _U64(words[row, i])
            first += factors[0, i] * word
            second += factors[1, i] * word
            third += factors[2, i] * word
            fourth += factors[3, i] * word
        sums[row, 0], sums[row, 1] = first, second
        sums[row, 2], sums[row, 3] = third, fourth
