"""Product quantisation: a row as m small numbers, each naming one of 2ⁿ words of a sub-space.

Sub-spaces are runs of dimensions whose widths differ by at most one, so m need not divide d.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering import kernels_kmeans, kernels_pq
from puffin_ann.ann.core import blas
from puffin_ann.ann.core.metrics import plain

TRAINED_ROWS_PER_WORD = 64
ITERATIONS = 12
ENCODE_BLOCK = 4096


def subspace_offsets(dimension: int, subspaces: int) -> NDArray[np.uint32]:
    """Return where each sub-space begins, `(m + 1,) uint32` from 0 to the dimension."""
    return (np.arange(subspaces + 1, dtype=np.uint64) * dimension // subspaces).astype(np.uint32)


def transpose_codebook(codebook: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a codebook `(m, 2**bits, w)` as kernels want it, `(m, w, 2**bits)`."""
    return np.ascontiguousarray(np.asarray(codebook).transpose(0, 2, 1))


def train(
    rows: NDArray[np.float32], offsets: NDArray[np.uint32], bits: int, *, seed: int, threads: int
) -> NDArray[np.float32]:
    """Return a codebook, `(m, 2**bits, w) float32`, zero-padded to the widest sub-space.

    With fewer rows than words, the words are the rows' parts, over and over.

    Args:
        rows: `(n, d) float32` or wider, n ≥ 1; at most 64 · 2**bits of them are looked at.
        offsets: as `subspace_offsets` gives them.
        bits: 1 … 8.
        seed: the same gives the same codebook, whatever the number of threads.
        threads: threads to use.
    """
    words = 1 << bits
    generator = np.random.default_rng([seed, 4])
    wanted = min(len(rows), TRAINED_ROWS_PER_WORD * words)
    sample = plain(rows[np.sort(generator.choice(len(rows), wanted, replace=False))])
    initial = sample[np.resize(generator.permutation(wanted), words)]
    codebook = np.zeros((len(offsets) - 1, words, int(np.diff(offsets).max())), np.float32)

    def one(subspace: int) -> None:
        first, last = int(offsets[subspace]), int(offsets[subspace + 1])
        found = _lloyd(plain(sample[:, first:last]), initial[:, first:last].copy())
        codebook[subspace, :, : last - first] = found

    for _ in blas.parallel(one, range(len(codebook)), threads):
        pass
    return codebook


def _lloyd(part: NDArray[np.float32], words: NDArray[np.float32]) -> NDArray[np.float32]:
    """Improve words `(k, w)` of a sub-space on `(n, w)` parts of rows; unused ones stay."""
    codes = np.empty(len(part), np.uint8)
    for _ in range(ITERATIONS):
        kernels_pq.nearest_words(part, 0, part.shape[1], plain(words.T), codes)
        sums = np.zeros(words.shape, np.float64)
        counts = np.zeros(len(words), np.int64)
        kernels_kmeans.add_up(part, codes.astype(np.uint32), sums, counts)
        used = counts > 0
        words[used] = sums[used] / counts[used, None]
    return words


def encode(
    rows: NDArray[np.float32],
    codebook: NDArray[np.float32],
    offsets: NDArray[np.uint32],
    threads: int,
) -> NDArray[np.uint8]:
    """Return the nearest word of every row in every sub-space, `(n, m) uint8`.

    Args:
        rows: `(n, d) float32` or wider, further columns are ignored; may be memory-mapped.
        codebook: as `train` gives it.
        offsets: as `subspace_offsets` gives them.
        threads: threads to use.
    """
    codes = np.empty((len(rows), len(codebook)), np.uint8)
    words = transpose_codebook(codebook)

    def block(at: int) -> None:
        part = plain(rows[at : at + ENCODE_BLOCK])
        found = np.empty(len(part), np.uint8)
        for j in range(len(codebook)):
            first, last = int(offsets[j]), int(offsets[j + 1])
            kernels_pq.nearest_words(part, first, last - first, words[j], found)
            codes[at : at + ENCODE_BLOCK, j] = found

    for _ in blas.parallel(block, range(0, len(rows), ENCODE_BLOCK), threads):
        pass
    return codes
