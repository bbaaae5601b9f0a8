"""Changes of rows as engines commit them: rows of an id get other words, or other vectors, too."""

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import In
from pyiceberg.table import Table

from tests.support.lake.tables import delete_equal, delete_positions
from tests.support.lifecycle import builds

KEYS = [("id",), ("word",), ("id", "word")]
"""Columns by which rows are deleted by equality."""


def changed(table: Table, ids: Collection[int], seed: int | None = None) -> pa.Table:
    """Return the live rows of some ids with other words; by a seed, with other vectors, too."""
    data = table.scan().to_arrow()
    data = data.filter(pa.compute.is_in(data["id"], pa.array(list(ids), pa.int64())))
    data = with_column(data, "word", [f"{word}+" for word in data["word"].to_pylist()])
    if seed is None:
        return data
    vectors = builds.rows(data["id"].to_pylist(), seed)["embedding"].to_pylist()
    return with_column(data, "embedding", vectors)


def update(table: Table, rows: pa.Table, *, merge_on_read: bool) -> None:
    """Put rows in the place of those of their ids, of which there are some.

    Files are written anew without these, and one with them; or they are deleted by position, and
    added in the same commit.
    """
    ids = set(rows["id"].to_pylist())
    if not merge_on_read:
        table.overwrite(rows, overwrite_filter=In("id", sorted(ids)))
        return
    places = {}
    for task in table.scan().plan_files():
        path = task.file.file_path
        with table.io.new_input(path).open() as stream:
            found = pq.read_table(stream, columns=["id"])["id"].to_pylist()
        places[path] = [place for place, number in enumerate(found) if number in ids]
    delete_positions(table, {path: found for path, found in places.items() if found}, added=rows)


def upsert(table: Table, rows: pa.Table) -> None:
    """Put rows in the place of those of their ids, if there are any, as Flink does."""
    delete_equal(table, rows.select(["id"]), added=rows)


def delete_by_equality(table: Table, ids: Collection[int], columns: Sequence[str]) -> None:
    """Delete the live rows of some ids, of which there are some, by what they have in columns."""
    data = table.scan(selected_fields=("id", "word")).to_arrow()
    data = data.filter(pa.compute.is_in(data["id"], pa.array(list(ids), pa.int64())))
    delete_equal(table, data.select(list(columns)))


def with_column(data: pa.Table, name: str, values: Sequence) -> pa.Table:
    """Return rows with other values in a column."""
    kind = data.schema.field(name)
    return data.set_column(data.schema.get_field_index(name), kind, pa.array(values, kind.type))
