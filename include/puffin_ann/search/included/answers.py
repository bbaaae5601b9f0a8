"""Columns of rows that are answered, by values that the index keeps of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import NestedField

from puffin_ann.search.included.arrow_values import arrow_type
from puffin_ann.search.included.kept_columns import KeptBlob, KeptColumns, Wanted, locators_at
from puffin_ann.search.results import array_of


@dataclass(frozen=True, eq=False)
class RowPlaces:
    """Where rows are in an index, and in the table.

    Attributes:
        shards: (n,) int64, id of each row's shard; -1: it is in none, or it is not known in which.
        ordinals: (n,) int64, in that shard.
        locators: (3, n) int64: file id, row group and offset; a file that is not covered has -1.
    """

    shards: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    locators: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Asked:
    """Rows that are looked for in a blob.

    Attributes:
        rows: (m,) int64, which of the rows asked for.
        places: (m,) int64, where they are in the blob, ascending.
        columns: numbers of the columns wanted.
    """

    blob: KeptBlob
    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    columns: Sequence[int]


def kept_values(
    kept: KeptColumns, fields: Sequence[NestedField], rows: RowPlaces
) -> tuple[NDArray[np.bool_], pa.Table]:
    """Return which rows have all their values kept, (n,) bool, and the columns of these rows.

    A value counts only where it was read under the very locator that the row has now.

    Args:
        kept: what the version keeps.
        fields: columns as the snapshot has them.
        rows: that are asked for.

    Raises:
        StoreUnavailableError: a file of the index cannot be read now.
    """
    found = np.zeros(len(rows.shards), np.bool_)
    order: list[NDArray[np.int64]] = []
    parts: list[pa.Table] = []
    asked = list(_asked(kept.blobs, fields, rows)) if fields else []
    with kept.reading((ask.blob, _wanted(ask, fields)) for ask in asked):
        for ask in asked:  # changes of a shard come before what they are of
            for block in np.unique(ask.places // ask.blob.reader.block_rows).tolist():
                taken = _take(kept, ask, block, fields, rows, found)
                if taken is not None:
                    order.append(taken[0])
                    parts.append(taken[1])
    target = pa.schema([(field.name, arrow_type(field.field_type)) for field in fields])
    table = pa.concat_tables([target.empty_table(), *parts])
    back = np.argsort(np.concatenate([np.zeros(0, np.int64), *order]), kind="stable")
    return found, table.take(array_of(back))


def _asked(
    blobs: Mapping[int, Sequence[KeptBlob]], fields: Sequence[NestedField], rows: RowPlaces
) -> list[_Asked]:
    found = []
    for shard_id in np.unique(rows.shards).tolist():
        mine = np.flatnonzero(rows.shards == shard_id)
        for blob in blobs.get(shard_id, ()):
            numbers = [blob.column_of(field) for field in fields]
            columns = [number for number in numbers if number is not None]
            if len(columns) < len(fields):
                continue
            places = blob.rows_of(rows.ordinals[mine])
            there = (places >= 0) & (places < blob.reader.rows)
            if there.any():
                order = np.argsort(places[there], kind="stable")
                found.append(_Asked(blob, mine[there][order], places[there][order], columns))
    return found


def _wanted(ask: _Asked, fields: Sequence[NestedField]) -> list[Wanted]:
    blocks = np.unique(ask.places // ask.blob.reader.block_rows).tolist()
    return [
        *(locators_at(block) for block in blocks),
        *(
            Wanted(column, block, field)
            for column, field in zip(ask.columns, fields, strict=True)
            for block in blocks
        ),
    ]


def _take(
    kept: KeptColumns,
    ask: _Asked,
    block: int,
    fields: Sequence[NestedField],
    rows: RowPlaces,
    found: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], pa.Table] | None:
    """Return the rows that a block has values of, which are marked as found, and those."""
    locators = kept.locators(ask.blob, block)
    if locators is None:
        return None
    size = ask.blob.reader.block_rows
    here = slice(*np.searchsorted(ask.places, [block * size, (block + 1) * size]).tolist())
    mine, at = ask.rows[here], ask.places[here] - block * size
    is_same = (locators[:, at].astype(np.int64) == rows.locators[:, mine]).all(axis=0)
    is_same &= ~found[mine]
    mine, at = mine[is_same], array_of(at[is_same])
    columns: dict[str, pa.Array] = {}
    for column, field in zip(ask.columns, fields, strict=True):
        values = kept.values(ask.blob, Wanted(column, block, field))
        if values is None:
            return None
        columns[field.name] = values.take(at)
    found[mine] = True
    return mine, pa.table(columns)
