"""The rows a graph is built and searched over: in the metric's search space, padded with zeros."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.memmap import new_array
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.graph.primitives import LANES
from puffin_ann.array_files import load_array

BLOCK_BYTES = 4 << 20
FAR = np.float32(4)
"""Where a zero row is put for cosine: further from every unit vector than those are apart.

At the origin it would be at squared distance 1 from every query, as if its cosine distance were
1/2 and not 1: thousands of them would crowd better rows out of every search, and each would seem a
short cut between all others to pruning.
"""
ZERO_ROWS = "zero_rows.npy"
EXTREME = 40
"""Lengths beyond 2⁴⁰, or below 2⁻⁴⁰, are brought near 1 for the inner product: their squares would
leave float32. A power of two changes no digit, and the length of neither side changes the order."""


def padded_dim(metric: str, dimension: int) -> int:
    """Return the numbers in a row of the space."""
    dim = METRICS[metric].search_dimension(dimension)
    return -(-dim // LANES) * LANES


def is_needed(metric: str, dimension: int) -> bool:
    """Tell if the space differs from the vectors as they are stored."""
    return metric != "l2" or padded_dim(metric, dimension) != dimension


def of_rows(
    vectors: NDArray[np.float32], metric: str, path: Path, *, lasting: bool = True
) -> NDArray[np.float32]:
    """Return `(n, w) float32`, read-only: the vectors themselves, or a file mapped from `path`.

    Memory is bounded by a block. The file appears under its name only when it is whole, after the
    list beside it for `zero_rows`: for cosine, of rows without a direction, which are put `FAR`
    away.

    Args:
        vectors: `(n, d) float32`; may be memory-mapped.
        metric: name.
        path: file to write, ending in `.npy`; left alone if the vectors will do as they are.
        lasting: wait until the file is on the disk, where a later process may trust it.
    """
    rows, dimension = vectors.shape
    if not is_needed(metric, dimension) or not rows:
        return _read_only(vectors, padded_dim(metric, dimension))
    with tempfile.TemporaryDirectory(prefix="space-", dir=path.parent) as work:
        _write(vectors, metric, Path(work, path.name), lasting)
        for name in (ZERO_ROWS, path.name):
            if Path(work, name).exists():
                os.replace(Path(work, name), path.with_name(name))
    return open_space(path)


def of_rows_beside(
    vectors: NDArray[np.float32], metric: str, folder: Path
) -> NDArray[np.float32] | None:
    """Return what `of_rows` does, for this process alone; None without room for it.

    It is mapped from a file of the folder that has no name any more, so that it ends with the
    array.
    """
    rows, dimension = vectors.shape
    if not is_needed(metric, dimension) or not rows:
        return _read_only(vectors, padded_dim(metric, dimension))
    if shutil.disk_usage(folder).free < 2 * 4 * rows * padded_dim(metric, dimension):
        return None
    with tempfile.TemporaryDirectory(prefix="space-", dir=folder) as work:
        return of_rows(vectors, metric, Path(work, "space.npy"), lasting=False)


def _write(vectors: NDArray[np.float32], metric: str, path: Path, lasting: bool) -> None:
    rows, dimension = vectors.shape
    out = new_array(path, np.float32, (rows, padded_dim(metric, dimension)))
    step = max(1, BLOCK_BYTES // (4 * dimension))
    bound = _longest(vectors, step) if metric == "ip" else 0.0
    scale = _power_of_two(np.array([bound]))[0]
    to_space = METRICS[metric].to_search_space
    zeros = []
    for at in range(0, rows, step):
        block = to_space(np.asarray(vectors[at : at + step]), bound)
        if metric == "cosine":
            there = np.flatnonzero(~block.any(axis=1))
            block[there, 0] = FAR
            zeros.append(at + there)
        if metric == "ip":
            block *= scale
        out[at : at + step, : block.shape[1]] = block
    if zeros:
        np.save(path.with_name(ZERO_ROWS), np.concatenate(zeros))
    if lasting:
        out.flush()


def open_space(path: Path) -> NDArray[np.float32]:
    """Map a file that `of_rows` wrote."""
    mapped = load_array(path, mapped=True)
    return _read_only(mapped, mapped.shape[1])


def zero_rows(path: Path) -> NDArray[np.int64]:
    """Return the rows that `of_rows` put `FAR` away when it wrote a file for cosine, ascending.

    Raises:
        OSError, ValueError: they are not listed beside it.
    """
    rows: NDArray[np.int64] = load_array(path.with_name(ZERO_ROWS)).astype(np.int64)
    return rows


def of_queries(
    queries: NDArray[np.float32], metric: str, length: float | None = None
) -> NDArray[np.float32]:
    """Return queries in the space, `(q, w) float32`.

    Args:
        queries: `(q, d) float32`.
        metric: name.
        length: of the rows in the space, which all have the same for the inner product: queries are
            made about as long, so that squared distances keep their digits. None if products are
            measured, which keep them anyway.
    """
    moved = METRICS[metric].queries_to_search_space(queries)
    if metric == "ip":
        largest = np.abs(moved).max(axis=1, initial=0)
        if length is None:
            moved *= _power_of_two(largest)[:, None]
        else:
            exponents = np.frexp(np.float32(length))[1] - np.frexp(largest)[1]
            np.ldexp(moved, exponents[:, None], out=moved)
    dim = padded_dim(metric, queries.shape[1])
    if moved.shape[1] == dim:
        return moved
    out = np.zeros((len(queries), dim), np.float32)
    out[:, : moved.shape[1]] = moved
    return out


def _power_of_two(lengths: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Return for each length what brings it near 1 if it is extreme, else 1."""
    exponents = np.frexp(lengths)[1]
    exponents[np.abs(exponents) <= EXTREME] = 0
    exponents = np.clip(exponents, -126, 126)  # whose powers of two float32 holds with all digits
    factors: NDArray[np.float32] = np.ldexp(np.float32(1), -exponents).astype(np.float32)
    return factors


def _longest(vectors: NDArray[np.float32], step: int) -> float:
    """Return the largest norm: the shard's own, since no tighter bound of its rows exists."""
    squares = [
        np.einsum("ij,ij->i", block, block, dtype=np.float64).max()
        for block in (vectors[at : at + step] for at in range(0, len(vectors), step))
    ]
    return float(np.sqrt(max(squares)))


def _read_only(array: NDArray[np.float32], dim: int) -> NDArray[np.float32]:
    if not len(array):
        array = np.zeros((0, dim), np.float32)
    view = np.ascontiguousarray(array, np.float32).view(np.ndarray)
    view.flags.writeable = False
    return view
