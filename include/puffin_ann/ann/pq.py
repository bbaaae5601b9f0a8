"""Product quantisation: a row as m small numbers, each naming one of 2ⁿ codewords of a sub-space.

Sub-spaces are runs of dimensions whose widths differ by at most one, so m need not divide d.
"""

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann import blas, kmeans
from puffin_ann.ann.metrics import plain

TRAINED_ROWS_PER_WORD = 64
ITERATIONS = 8
ENCODE_BLOCK = 4096


def subspace_offsets(dimension: int, subspaces: int) -> NDArray[np.uint32]:
    """Return where each sub-space begins, `(m + 1,) uint32` from 0 to the dimension."""
    return (np.arange(subspaces + 1, dtype=np.uint64) * dimension // subspaces).astype(np.uint32)


def train(
    rows: NDArray[np.float32], offsets: NDArray[np.uint32], bits: int, *, seed: int, threads: int
) -> NDArray[np.float32]:
    """Return a codebook, `(m, 2**bits, w) float32`, zero-padded to the widest sub-space.

    With fewer rows than codewords, every row's part is one, and the rest repeat the first.

    Args:
        rows: `(n, d) float32`, n ≥ 1; at most 64 · 2**bits of them are looked at.
        offsets: as `subspace_offsets` gives them.
        bits: 1 … 8.
        seed: the same gives the same codebook, whatever the number of threads.
        threads: threads to use.

    """
    words = 1 << bits
    wanted = min(len(rows), TRAINED_ROWS_PER_WORD * words)
    chosen = np.random.default_rng([seed, 4]).choice(len(rows), wanted, replace=False)
    sample = np.ascontiguousarray(rows[np.sort(chosen)])
    subspaces = len(offsets) - 1
    codebook = np.zeros((subspaces, words, int(np.diff(offsets).max())), np.float32)

    def one(j: int) -> None:
        part = plain(sample[:, offsets[j] : offsets[j + 1]])
        found = kmeans.train(
            part, min(words, len(part)), seed=seed + j, iterations=ITERATIONS, threads=1
        )
        codebook[j, :, : part.shape[1]] = found[0]
        codebook[j, : len(found), : part.shape[1]] = found

    with blas.single_thread():
        for _ in blas.parallel(one, range(subspaces), threads):
            pass
    return codebook


def encode(
    rows: NDArray[np.float32],
    codebook: NDArray[np.float32],
    offsets: NDArray[np.uint32],
    threads: int,
) -> NDArray[np.uint8]:
    """Return the nearest codeword of every row in every sub-space, `(n, m) uint8`.

    Args:
        rows: `(n, d) float32` or wider, further columns are ignored; may be memory-mapped.
        codebook: as `train` gives it.
        offsets: as `subspace_offsets` gives them.
        threads: threads to use.

    """
    codes = np.empty((len(rows), len(codebook)), np.uint8)

    def block(at: int) -> None:
        part = np.asarray(rows[at : at + ENCODE_BLOCK])
        for j in range(len(codebook)):
            width = int(offsets[j + 1] - offsets[j])
            words = plain(codebook[j, :, :width])
            ids, _ = kmeans.assign(plain(part[:, offsets[j] : offsets[j + 1]]), words)
            codes[at : at + ENCODE_BLOCK, j] = ids

    with blas.single_thread():
        for _ in blas.parallel(block, range(0, len(rows), ENCODE_BLOCK), threads):
            pass
    return codes
