"""Foretell how many requests a first answer takes where no shard is on local disk.

Which cells are near to a query nobody knows before; how they lie is as in indexes that were
measured: those of words and of mixtures of them, of 1 and 4 shards.
"""

from puffin_ann.ann.ivf.lists import default_lists, default_subspaces
from puffin_ann.blobs.encoding.stored_vectors import BESIDE_BYTES, NUMBER_BYTES
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.engines.sizes import Shape, Size, place_bytes
from puffin_ann.errors import BadInputError
from puffin_ann.lake.store.ranges import FEW, NEAR
from puffin_ann.search.shards.cold.listed import MOST_LOCATORS
from puffin_ann.search.version.index_files import END_BYTES

USUAL_CELLS, NEIGHBOURS = 8, 10
"""Read by a query of which that is not known, and asked for by any."""
CELLS_SPREAD, LISTS_SPREAD = 0.7, 0.25
"""Share of a shard's cells, and lists, that those near to a query are anywhere among: lists stand
in about the order of cells."""
SHARDS_SPREAD = 0.5
"""So many of the shards beyond the first are asked as would be if cells lay anywhere."""


def cells_read(shape: Shape, given: int | None) -> int:
    """Return how many cells a query reads; lists of a shard, where vectors are not stored.

    Args:
        shape: of the index.
        given: that it reads; None: as usual.

    Raises:
        BadInputError: there are not so many.
    """
    most, what = max(1, min(shape.cells, shape.rows)), "cells with rows"
    if shape.index.vectors == "none":
        most, what = default_lists(shape.shard_rows), "lists of a shard"
    if given is None:
        return min(USUAL_CELLS, most)
    if not shape.shards:
        raise BadInputError(
            f"--cells is {given}, of which {shape.index.algorithm} has none; leave it out"
        )
    if given > most:
        raise BadInputError(
            f"--cells is {given}, but {shape.rows:,} rows have at most {most:,} {what}; take at "
            f"most {most}"
        )
    return given


def expected_requests(shape: Shape, size: Size, cells: int) -> int:
    """Return the requests that one query sends to S3, the table's metadata being loaded.

    Args:
        shape: of the index.
        size: of the same.
        cells: nearest ones whose rows are read; lists of a shard, where vectors are not stored.
    """
    small = size.routing + size.partitions + size.coverage + size.footer
    found = 2.0 + (small > END_BYTES)  # a manifest list, and the end of the file
    if shape.shards and shape.rows:
        is_listed = shape.index.vectors == "none"
        found += _of_lists(shape, cells) if is_listed else _of_cells(shape, cells)
    return round(found)


def _of_cells(shape: Shape, cells: int) -> float:
    form, cells = shape.index.vectors, min(cells, shape.cells)
    asked = _asked(shape, cells)
    among = CELLS_SPREAD * asked * shape.index.partitions_per_shard
    beside = [4] * (BESIDE_BYTES[form] // 4)  # errors and scales
    row_bytes = (NUMBER_BYTES[form] * shape.dimension, *beside, place_bytes(shape.cells))
    read = sum(_reads(cells, among, shape.rows / shape.cells * of) for of in row_bytes)
    looked_up = 0.0 if form == "float32" else _of_table(shape, NEIGHBOURS)
    return _opened(asked) + _joined(read) + looked_up


def _of_lists(shape: Shape, lists: int) -> float:
    from puffin_ann.engines.ivf_pq import effort_of  # whoever sizes others needs no kernels

    asked = _asked(shape, min(lists, shape.cells))
    rows = shape.shard_rows
    every = default_lists(rows)
    lists = min(lists, every)
    m = shape.parameters.pq_m or default_subspaces(shape.dimension)
    coarse = (shape.dimension / m) ** 1.5
    _, wanted = effort_of(NEIGHBOURS, 2 * lists, every, rows, coarse)
    row_bytes = (4, -(-m // 2), 4)  # ordinals, codes, biases
    read = sum(_reads(lists, LISTS_SPREAD * every, rows / every * of) for of in row_bytes)
    places = place_bytes(shape.cells)
    blocks = LISTS_SPREAD * rows / rows_blob.BLOCK_ROWS
    if rows * places <= MOST_LOCATORS:
        read += 1
    else:
        read += _reads(_distinct(wanted, blocks), blocks, rows_blob.BLOCK_ROWS * places)
    return _opened(asked) + _joined(asked * read) + _of_table(shape, asked * wanted)


def _asked(shape: Shape, cells: int) -> float:
    """Return how many shards have some of the nearest cells."""
    return 1 + SHARDS_SPREAD * (_distinct(cells, shape.shards) - 1)


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
