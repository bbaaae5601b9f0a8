"""The files of a shard that rows are added to: copied once, at the speed of the disk's cache."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.graph import space as spaces
from puffin_ann.array_files import load_array
from puffin_ann.errors import LocalCopyError

COPIED_BYTES = 256 << 10
"""Written at a time. From a mapped file the kernel takes twice as long by 64 MiB, and now and then
five times as long by 1 to 4 MiB."""


def append_vectors(
    stored: NDArray[np.float32], added: NDArray[np.float32], path: Path
) -> NDArray[np.float32]:
    """Write `(n, w)` rows and `(m, w)` added ones to a new `.npy` file; return it, mapped.

    Written, not copied through a mapping: that would take a page fault for every 4 KiB.
    """
    shape = (len(stored) + len(added), stored.shape[1])
    rows = max(1, COPIED_BYTES // (4 * shape[1]))
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for part in (stored, added):
            for at in range(0, len(part), rows):
                file.write(np.ascontiguousarray(part[at : at + rows], "<f4").data)
    mapped: NDArray[np.float32] = load_array(path, mapped=shape[0] > 0)
    return mapped


def extend_space(
    stored: Path,
    vectors: NDArray[np.float32],
    first: int,
    metric: str,
    path: Path,
) -> NDArray[np.float32]:
    """Return the rows of a grown shard as they are searched, `(n, w) float32`, read-only.

    Those it had before are taken as they are, unless their file is gone, or an added one is longer
    than all of them and the inner product has to be measured again.

    Args:
        stored: file that `space.of_rows` wrote for the rows before `first`.
        vectors: `(n, d) float32`, the added rows at the end; may be memory-mapped.
        first: the first added row, at least 1.
        metric: name.
        path: file to write; left alone if the vectors will do as they are.
    """
    if not spaces.is_needed(metric, vectors.shape[1]) or not stored.exists():
        return spaces.of_rows(vectors, metric, path, lasting=False)
    dim = spaces.padded_dim(metric, vectors.shape[1])
    try:
        before = spaces.open_space(stored)
    except (OSError, ValueError) as error:
        raise LocalCopyError(f"{stored.parent} is not a whole unpacked shard: {error}") from None
    if before.shape != (first, dim):
        raise LocalCopyError(f"{stored}: shape {before.shape}, not {(first, dim)}")
    bound = 0.0
    if metric == "ip":
        # Every row of the space has the length of the longest vector.
        bound = float(np.sqrt(np.square(before[0], dtype=np.float64).sum()))
        longest = np.sqrt(np.square(vectors[first:], dtype=np.float64).sum(axis=1).max(initial=0))
        scaled = not np.array_equal(before[:, : vectors.shape[1]], vectors[:first])
        if scaled or longest > bound:
            return spaces.of_rows(vectors, metric, path, lasting=False)
    moved = METRICS[metric].to_search_space(np.asarray(vectors[first:]), bound)
    rows = np.zeros((len(moved), dim), np.float32)
    rows[:, : moved.shape[1]] = moved
    if metric == "cosine":
        rows[~moved.any(axis=1), 0] = spaces.FAR
    append_vectors(before, rows, path)
    return spaces.open_space(path)
