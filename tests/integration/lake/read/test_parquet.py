import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
)

from puffin_ann.errors import (
    ColumnNotFoundError,
    EnvironmentProblemError,
    FormatError,
    UnsupportedColumnError,
    UnsupportedTableError,
)
from puffin_ann.lake.read.data.parquet import (
    dimension_of,
    open_file,
    read_vectors,
    row_group_rows,
)
from puffin_ann.lake.read.data.vector_column import table_vector_column, vector_column
from puffin_ann.lake.read.files.live_files import live_files
from tests.support.lake import tables


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = tables.create(catalog)
    table.append(tables.rows(0, 25))
    return table


def vectors(table: Table, name: str = "embedding") -> np.ndarray:
    """All valid vectors of the table in file order."""
    column = table_vector_column(table, name)
    parts = []
    for file in live_files(table):
        with open_file(table.io, file.path) as parquet:
            for group in range(parquet.num_row_groups):
                batch = read_vectors(table.io, file.path, group, column, 4, parquet=parquet)
                parts.append(batch.matrix[batch.valid])
    return np.concatenate(parts)


def by_first(matrix: np.ndarray) -> np.ndarray:
    return matrix[np.argsort(matrix[:, 0])]


# The column


def test_a_vector_column_is_found_by_name(table: Table) -> None:
    column = table_vector_column(table, "embedding")
    assert (column.field_id, column.name, column.element) == (3, "embedding", "float")
    assert column.mapped_names is None


def test_a_missing_column_is_told_with_those_there_are(table: Table) -> None:
    with pytest.raises(ColumnNotFoundError, match=r"lake\.demo\.words.*'vec'.*embedding"):
        table_vector_column(table, "vec")


def test_a_column_that_is_no_list_of_floats_is_refused(table: Table) -> None:
    with pytest.raises(UnsupportedColumnError, match=r"'word'.*string"):
        table_vector_column(table, "word")
    whole = Schema(NestedField(1, "v", ListType(2, IntegerType(), element_required=False)))
    with pytest.raises(UnsupportedColumnError, match="list<int>"):
        vector_column(whole, "v")


# Vectors by row group


def test_row_groups_are_read_one_by_one(table: Table) -> None:
    [file] = live_files(table)
    column = table_vector_column(table, "embedding")
    assert row_group_rows(table.io, file.path, file.size) == (10, 10, 5)
    batch = read_vectors(table.io, file.path, 1, column)
    np.testing.assert_array_equal(batch.matrix, tables.matrix(range(10, 20)))
    assert batch.valid.all()
    assert batch.reasons() == {}


def test_a_row_group_that_is_not_there_is_refused(table: Table) -> None:
    [file] = live_files(table)
    with pytest.raises(FormatError, match="3 row groups"):
        read_vectors(table.io, file.path, 3, table_vector_column(table, "embedding"))


def test_a_file_of_another_size_than_the_manifest_says_is_refused(table: Table) -> None:
    [file] = live_files(table)
    with pytest.raises(FormatError, match=str(file.size)):
        row_group_rows(table.io, file.path, file.size + 1)


def test_a_lost_data_file_is_told_as_such(table: Table) -> None:
    [file] = live_files(table)
    table.io.delete(file.path)
    with pytest.raises(EnvironmentProblemError, match="gone"):
        row_group_rows(table.io, file.path)


def test_a_file_that_is_no_parquet_is_refused(table: Table) -> None:
    [file] = live_files(table)
    with table.io.new_output(file.path).create(overwrite=True) as out:
        out.write(b"not parquet at all")
    with pytest.raises(FormatError, match="not a readable Parquet"):
        open_file(table.io, file.path)


def test_bad_vectors_are_counted_by_reason(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    good = [1.0, 2.0, 3.0, 4.0]
    rows = [good, None, [1.0], [], [float("nan")] * 4, [float("inf"), 0.0, 0.0, 0.0], good]
    data = pa.table({"embedding": pa.array(rows, pa.list_(pa.float32()))})
    table.append(data)
    [file] = live_files(table)
    column = table_vector_column(table, "embedding")
    batch = read_vectors(table.io, file.path, 0, column, 4)
    assert batch.reasons() == {"null": 1, "wrong-length": 2, "not-finite": 2}
    assert batch.valid.tolist() == [True, False, False, False, False, False, True]


def test_the_dimension_is_that_of_the_first_vector(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    column = table_vector_column(table, "embedding")
    assert dimension_of(table.io, live_files(table), column) is None
    table.append(pa.table({"embedding": pa.array([None, []], pa.list_(pa.float32()))}))
    assert dimension_of(table.io, live_files(table), column) is None
    table.append(tables.rows(0, 3))
    assert dimension_of(table.io, live_files(table), column) == 4


def test_doubles_are_read_as_float32(catalog: SqlCatalog) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(3, "embedding", ListType(4, DoubleType(), element_required=False)),
    )
    table = tables.create(catalog, schema=schema)
    data = tables.rows(0, 5).drop(["word"])
    table.append(data.set_column(1, "embedding", data["embedding"].cast(pa.list_(pa.float64()))))
    assert table_vector_column(table, "embedding").element == "double"
    np.testing.assert_array_equal(vectors(table), tables.matrix(range(5)))


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float32(), 4), pa.large_list(pa.float32()), pa.list_(pa.float32())],
)
def test_every_kind_of_list_that_arrow_writes_is_read(table: Table, kind: pa.DataType) -> None:
    """As a file that somebody else wrote and added, so without field ids."""
    data = tables.rows(100, 12)
    data = data.set_column(2, "embedding", data["embedding"].cast(kind))
    path = f"{table.location()}/../elsewhere/other.parquet"
    with table.io.new_output(path).create() as out:
        pq.write_table(data, out, row_group_size=5)
    table.add_files([path])
    assert table_vector_column(table, "embedding").mapped_names == ("embedding",)
    found = by_first(vectors(table))
    np.testing.assert_array_equal(found[-12:], tables.matrix(range(100, 112)))


def test_files_outside_the_table_location_are_live_too(table: Table) -> None:
    path = f"{table.location()}/../elsewhere/other.parquet"
    with table.io.new_output(path).create() as out:
        pq.write_table(tables.rows(100, 3), out)
    table.add_files([path])
    outside = [file for file in live_files(table) if file.path == path]
    assert [file.rows for file in outside] == [3]


def test_files_without_ids_need_a_name_mapping(table: Table) -> None:
    path = f"{table.location()}/../elsewhere/other.parquet"
    with table.io.new_output(path).create() as out:
        pq.write_table(tables.rows(100, 3), out)
    column = table_vector_column(table, "embedding")
    with pytest.raises(UnsupportedTableError, match="name-mapping"):
        read_vectors(table.io, path, 0, column)


# Schema evolution


def test_a_renamed_and_moved_column_is_found_by_its_id(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("embedding", "vec")
    with table.update_schema() as update:
        update.move_first("vec")
    table.append(tables.rows(25, 5).rename_columns(["id", "word", "vec"]))
    np.testing.assert_array_equal(by_first(vectors(table, "vec")), tables.matrix(range(30)))


def test_a_new_column_of_an_old_name_is_another_column(table: Table) -> None:
    with table.update_schema() as update:
        update.delete_column("embedding")
    with table.update_schema() as update:
        update.add_column("embedding", ListType(100, FloatType(), element_required=False))
    assert vectors(table).shape == (0, 4)
    table.append(tables.rows(25, 5))
    np.testing.assert_array_equal(vectors(table), tables.matrix(range(25, 30)))


def test_rows_before_the_column_was_added_are_null(catalog: SqlCatalog) -> None:
    table = tables.create(catalog, schema=Schema(NestedField(1, "id", LongType())))
    table.append(pa.table({"id": pa.array([1, 2, 3])}))
    with table.update_schema() as update:
        update.add_column("embedding", ListType(9, FloatType(), element_required=False))
    [file] = live_files(table)
    batch = read_vectors(table.io, file.path, 0, table_vector_column(table, "embedding"), 4)
    assert batch.reasons() == {"null": 3}
    assert batch.matrix.shape == (3, 4)
