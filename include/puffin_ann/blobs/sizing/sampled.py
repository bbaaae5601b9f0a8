"""Sizes of what depends on how numbers fall, found by encoding a block of made-up ones.

So a prediction is right about varints and zstd too.
"""

import io
import math

import numpy as np

from puffin_ann.blobs import graph, rows
from puffin_ann.blobs.sizing.shape import IndexShape

NATURAL_DEGREE = 38.0
NATURAL_ROWS = 20_000
NATURAL_GROWTH = 5.0
NATURAL_BEND = 4
"""Mean degree a graph would have without a maximum, in a shard of so many rows, what each doubling
of the rows adds, and how sharply the maximum cuts in. Measured on graphs that our builder (alpha
1.2) made of GloVe words, sentence vectors and normal vectors of 32 dimensions, 5,000 to 100,000
each; vectors of few dimensions have half of it."""

DEGREE_SPREAD = 0.5
"""Degrees of real graphs differ, by a third to a half: their varints do not compress away."""

NEAR_SHARE = 0.7
NEAR_SHARE_FALL = 0.06
LEAST_NEAR_SHARE = 0.1
"""Share of a row's neighbours that its own cell has beyond those by chance, of one cell, and what
each doubling of the cells takes away. Measured on graphs of GloVe words and of sentence vectors,
6,000 and 19,000 each, in 2 to 64 cells: off by 0.11 at most. Within a cell neighbours are nearer
than they are drawn here, so that the adjacency is predicted too large, by up to a tenth."""

LOCATORS = 1 << 16
"""Locators that are encoded; there are as many in 16 blocks."""

MOST_IN_GROUP = 1 << 31
"""Rows of a row group, of which there are more than were said rather than larger ones."""


def scale(sample: tuple[int, int], count: int) -> int:
    """Scale the bytes of a sample (bytes, items) to `count` items."""
    size, items = sample
    return round(size * count / items) if items else 0


def adjacency_sample(shape: IndexShape, count: int) -> tuple[int, int]:
    """Encode one block of nodes, their neighbours drawn from their own cell or all the shard."""
    nodes = min(count, graph.BLOCK_NODES)
    rng = np.random.default_rng(0)
    mean = _mean_degree(shape, count)
    spread = min(DEGREE_SPREAD * mean, max(min(shape.max_degree, count - 1) - mean, 0))
    degrees = np.rint(rng.uniform(mean - spread, mean + spread, nodes)).astype(np.uint16)
    widest = int(degrees.max(initial=0))
    drawn = rng.integers(0, count - widest + 1, (nodes, widest))
    cells = shape.partitions_per_shard
    if cells > 1:
        near = max(NEAR_SHARE - NEAR_SHARE_FALL * math.log2(cells), LEAST_NEAR_SHARE)
        size = max(count // cells, 1)
        own = np.arange(nodes)[:, None] // size * size
        own = own + rng.integers(0, max(size - round(near * mean), 1), (nodes, widest))
        is_near = rng.random((nodes, widest)) < near
        drawn = np.where(is_near, np.minimum(own, count - widest), drawn)
    drawn[np.arange(widest) >= degrees[:, None]] = count
    # Ascending values with j added to the j-th are distinct, and as evenly spread.
    lists = np.sort(drawn, axis=1) + np.arange(widest)
    return _encoded_adjacency(degrees, lists.astype(np.uint32), count), nodes


def locator_sample(shape: IndexShape, count: int) -> tuple[int, int]:
    """Encode locators of a shard in the order of cells, the rows of each spread over all files."""
    kept = min(count, LOCATORS)
    if not kept:
        return 0, 0
    rng = np.random.default_rng(0)
    in_cell = count / max(shape.partitions_per_shard, 1)
    gaps = rng.geometric(min(1.0, in_cell / shape.rows), kept)
    positions = (np.cumsum(gaps) - 1) % shape.rows  # where one cell ends, the next begins anew
    in_file = max(shape.rows // max(shape.files, 1), 1)
    in_group = min(max(in_file // max(shape.row_groups, 1), 1), MOST_IN_GROUP)
    locators = rows.Rows(
        (positions // in_file).astype(np.uint32),
        (positions % in_file // in_group).astype(np.uint32),
        (positions % in_file % in_group).astype(np.uint32),
    )
    blob = io.BytesIO()
    rows.write(locators, blob)
    return rows.open_reader(blob).section_length("locs"), kept


def _compressed(block: memoryview) -> int:
    import zstandard

    from puffin_ann.blobs.encoding import blocks

    return len(zstandard.ZstdCompressor(level=blocks.LEVEL).compress(block))


def _mean_degree(shape: IndexShape, count: int) -> float:
    known = shape.mean_degree
    if known is None and shape.max_degree:
        doublings = math.log2(max(count, 2) / NATURAL_ROWS)
        natural = max(NATURAL_DEGREE + NATURAL_GROWTH * doublings, 4.0)
        powers = natural**-NATURAL_BEND + shape.max_degree**-NATURAL_BEND
        known = powers ** (-1 / NATURAL_BEND)
    return min(known or 0.0, shape.max_degree, max(count - 1, 0))


def _encoded_adjacency(degrees: np.ndarray, lists: np.ndarray, count: int) -> int:
    from puffin_ann.blobs.encoding.kernels import put_adjacency
    from puffin_ann.blobs.encoding.varints import MAX_BYTES

    out = np.empty(len(degrees) * (3 + MAX_BYTES * lists.shape[1]), np.uint8)
    used = put_adjacency(degrees, lists, count, out)
    return _compressed(out[:used].data)
