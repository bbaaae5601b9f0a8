"""Foretell how many requests a first answer takes where no shard is on local disk.

Which cells are near to a query nobody knows before; how they lie is as in indexes that were
measured: those of words and of mixtures of them, of 1 and 4 shards.
"""

from puffin_ann.ann.ivf.lists import default_lists, default_subspaces
from puffin_ann.blobs.encoding.stored_vectors import NUMBER_BYTES
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.engines.sizes import Shape, Size, place_bytes
from puffin_ann.lake.store.ranges import FEW, NEAR
from puffin_ann.search.shards.cold.listed import MOST_LOCATORS
from puffin_ann.search.version.index_files import END_BYTES

NEIGHBOURS = 10
"""Asked for."""
CELLS_SPREAD, LISTS_SPREAD = 0.7, 0.25
"""Share of a shard's cells, and lists, that those near to a query are anywhere among: lists stand
in about the order of cells."""
SHARDS_SPREAD = 0.5
"""So many of the shards beyond the first are asked as would be if cells lay anywhere."""


def most_cells(shape: Shape) -> int:
    """Return how many cells with rows there are at most; lists of a shard, without vectors.

    Args:
        shape: of the index, its shards known.
    """
    shards = shape.shards or 1
    if shape.vectors == "none":
        return default_lists(-(-shape.rows // shards))
    return max(1, min(shards * shape.partitions_per_shard, shape.rows))


def expected_requests(shape: Shape, size: Size, cells: int) -> int:
    """Return the requests that one query sends to S3, the table's metadata being loaded.

    Args:
        shape: of the index, its shards known.
        size: of the same.
        cells: nearest ones whose rows are read; lists of a shard, where vectors are not stored.
    """
    small = size.routing + size.partitions + size.coverage + size.footer
    found = 2.0 + (small > END_BYTES)  # a manifest list, and the end of the file
    if shape.shards and shape.rows:
        found += _of_lists(shape, cells) if shape.vectors == "none" else _of_cells(shape, cells)
    return round(found)


def _of_cells(shape: Shape, cells: int) -> float:
    every = (shape.shards or 1) * shape.partitions_per_shard
    cells = min(cells, every)
    asked = _asked(shape, cells)
    among = CELLS_SPREAD * asked * shape.partitions_per_shard
    rows = shape.rows / every
    row_bytes = {
        "float32": [4 * shape.dimension],
        "float16": [NUMBER_BYTES["float16"] * shape.dimension, 4],
        "int8": [NUMBER_BYTES["int8"] * shape.dimension, 4, 4],
    }[shape.vectors]
    read = sum(_reads(cells, among, rows * of) for of in (*row_bytes, place_bytes(every)))
    looked_up = 0.0 if shape.vectors == "float32" else _of_table(shape, NEIGHBOURS)
    return _opened(asked) + _joined(read) + looked_up


def _of_lists(shape: Shape, lists: int) -> float:
    from puffin_ann.engines.ivf_pq import effort_of  # whoever sizes others needs no kernels

    shards = shape.shards or 1
    asked = _asked(shape, min(lists, shards * shape.partitions_per_shard))
    rows = -(-shape.rows // shards)
    every = default_lists(rows)
    lists = min(lists, every)
    m = shape.codes or default_subspaces(shape.dimension)
    coarse = (shape.dimension / m) ** 1.5
    _, wanted = effort_of(NEIGHBOURS, 2 * lists, every, rows, coarse)
    row_bytes = (4, -(-m // 2), 4)  # ordinals, codes, biases
    read = sum(_reads(lists, LISTS_SPREAD * every, rows / every * of) for of in row_bytes)
    places = place_bytes(shards * shape.partitions_per_shard)
    blocks = LISTS_SPREAD * rows / rows_blob.BLOCK_ROWS
    if rows * places <= MOST_LOCATORS:
        read += 1
    else:
        read += _reads(_distinct(wanted, blocks), blocks, rows_blob.BLOCK_ROWS * places)
    return _opened(asked) + _joined(asked * read) + _of_table(shape, asked * wanted)


def _asked(shape: Shape, cells: int) -> float:
    """Return how many shards have some of the nearest cells."""
    shards = shape.shards or 1
    return 1 + SHARDS_SPREAD * (_distinct(cells, shards) - 1)


def _opened(shards: float) -> float:
    """Return the reads that tell where rows are: both ends of two blobs that lie side by side."""
    return 2 * shards + 1


def _of_table(shape: Shape, rows: float) -> float:
    """Return the reads for vectors of some rows of the table: footers, and row groups."""
    return _distinct(rows, shape.files) + _distinct(rows, shape.files * shape.row_groups)


def _joined(reads: float) -> float:
    """Return the reads that are sent for so many: of more than few, those near each other are one.

    That holds as far as little lies between them, as it does in indexes that were measured.
    """
    return min(reads, FEW)


def _distinct(draws: float, of: float) -> float:
    """Return how many different ones are among so many that are drawn of some."""
    return float(of * (1 - (1 - 1 / of) ** draws)) if of > 1 else 1.0


def _reads(parts: float, among: float, part_bytes: float) -> float:
    """Return the reads for some of more parts side by side; those near each other are one."""
    if parts >= among:
        return 1.0
    between = 1 + NEAR // max(part_bytes, 1)
    return float(1 + (parts - 1) * (1 - parts / among) ** between)
