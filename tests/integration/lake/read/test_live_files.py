import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType
from pyroaring import BitMap

from puffin_ann.errors import (
    FormatError,
    PuffinFormatError,
    SnapshotNotFoundError,
    UnsupportedTableError,
)
from puffin_ann.lake.read.data.parquet import open_file, read_vectors
from puffin_ann.lake.read.data.vector_column import table_vector_column
from puffin_ann.lake.read.deletes.row_deletes import deleted_positions
from puffin_ann.lake.read.files.live_files import LiveFile, live_files
from puffin_ann.puffin.writer import PuffinWriter
from tests.support.lake import tables


def seen_ids(table: Table, snapshot_id: int | None = None) -> list[int]:
    """Ids of the live rows, by our own reading of files, deletes and vectors."""
    files = live_files(table, snapshot_id)
    deleted = deleted_positions(table, files)
    column = table_vector_column(table, "embedding")
    found: list[int] = []
    for file in files:
        positions = deleted.get(file.path, BitMap())
        first = 0
        with open_file(table.io, file.path) as parquet:
            for group in range(parquet.num_row_groups):
                batch = read_vectors(table.io, file.path, group, column, parquet=parquet)
                live = [i for i in range(len(batch.valid)) if first + i not in positions]
                found += batch.matrix[live, 0].astype(int).tolist()
                first += len(batch.valid)
        assert first == file.rows
    return sorted(found)


def test_an_empty_table_has_no_live_files(catalog: SqlCatalog) -> None:
    assert live_files(tables.create(catalog)) == []


def test_live_files_are_those_of_the_snapshot_asked_for(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 25))
    first = table.current_snapshot()
    table.append(tables.rows(25, 5))
    table.delete("id < 10")

    assert seen_ids(table) == tables.live_ids(table) == list(range(10, 30))
    assert seen_ids(table, first.snapshot_id) == list(range(25))
    files = live_files(table)
    assert [file.path for file in files] == sorted(file.path for file in files)
    sizes = {file.path: file.size for file in files}
    assert sizes == {path: len(table.io.new_input(path)) for path in sizes}
    assert {file.sequence_number for file in files} == {2, 3}


def test_an_unknown_snapshot_is_refused_with_those_there_are(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 3))
    with pytest.raises(SnapshotNotFoundError, match=str(table.current_snapshot().snapshot_id)):
        live_files(table, 17)


def test_position_deletes_hide_rows_of_their_file_only(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 25))
    table.append(tables.rows(25, 25))
    before = table.current_snapshot().snapshot_id
    one, two = sorted(live_files(table), key=lambda file: file.sequence_number)
    tables.delete_positions(table, {one.path: [0, 12, 24]})
    tables.delete_positions(table, {one.path: [1, 12], two.path: [3]})

    gone = {0, 12, 24, 1, 28}
    assert seen_ids(table) == tables.live_ids(table) == sorted(set(range(50)) - gone)
    assert seen_ids(table, before) == list(range(50))
    found = deleted_positions(table, live_files(table))
    assert found == {one.path: BitMap([0, 1, 12, 24]), two.path: BitMap([3])}


def test_deletes_older_than_a_file_do_not_touch_it(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 5))
    [one] = live_files(table)
    tables.delete_positions(table, {one.path: [0]})
    table.append(tables.rows(5, 5))
    assert [len(file.deletes) for file in live_files(table)].count(0) == 1
    assert seen_ids(table) == tables.live_ids(table)


def test_positions_past_the_last_row_name_no_row(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 5))
    [one] = live_files(table)
    tables.delete_positions(table, {one.path: [4, 5, 900]})
    assert deleted_positions(table, live_files(table)) == {one.path: BitMap([4])}


def test_deletes_of_a_partition_reach_its_files_only(catalog: SqlCatalog) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "word"))
    table = tables.create(catalog, spec=spec)
    table.append(tables.rows(0, 3))
    table.append(tables.rows(0, 3))
    files = live_files(table)
    assert sorted(file.partition for file in files) == [
        (w,) for w in ("w0", "w0", "w1", "w1", "w2", "w2")
    ]
    w1 = [file for file in files if file.partition == ("w1",)]
    tables.delete_positions(table, {file.path: [0] for file in w1}, partition=Record("w1"))
    assert {file.partition for file in live_files(table) if file.deletes} == {("w1",)}
    assert seen_ids(table) == tables.live_ids(table) == [0, 0, 2, 2]


def put_vectors(
    table: Table, vectors: dict[str, list[int]], *, shift: int = 0, v3_fields: bool = True
) -> None:
    """Delete rows by deletion vectors, all in one Puffin file."""
    path = table.location_provider().new_data_location("vectors.puffin")
    with table.io.new_output(path).create() as out:
        writer = PuffinWriter(out)
        blobs = [
            writer.add(
                "deletion-vector-v1",
                tables.deletion_vector_blob(positions),
                fields=[2147483545],
                snapshot_id=-1,
                sequence_number=-1,
                properties={"referenced-data-file": file, "cardinality": str(len(positions))},
            )
            for file, positions in vectors.items()
        ]
        writer.finish({})
    size = len(table.io.new_input(path))
    entries = [
        tables.vector_file(path, size, blob.offset + shift, blob.length, file, len(vectors[file]))
        for blob, file in zip(blobs, vectors, strict=True)
    ]
    tables.commit_delete_files(table, entries, v3_fields=v3_fields)


def test_a_deletion_vector_hides_rows_of_the_file_it_refers_to(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 25))
    table.append(tables.rows(25, 25))
    one, two = sorted(live_files(table), key=lambda file: file.sequence_number)
    put_vectors(table, {one.path: [0, 3, 24], two.path: [7]})

    found = deleted_positions(table, live_files(table))
    assert found == {one.path: BitMap([0, 3, 24]), two.path: BitMap([7])}
    assert seen_ids(table) == sorted(set(range(50)) - {0, 3, 24, 32})


def test_a_deletion_vector_replaces_older_position_deletes(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 25))
    [one] = live_files(table)
    tables.delete_positions(table, {one.path: [1]})
    put_vectors(table, {one.path: [1, 2]})
    [file] = live_files(table)
    assert [delete.kind for delete in file.deletes] == ["vector"]
    assert deleted_positions(table, [file]) == {one.path: BitMap([1, 2])}


def test_a_manifest_pointing_beside_the_blob_is_refused(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 5))
    [one] = live_files(table)
    put_vectors(table, {one.path: [1]}, shift=1)
    with pytest.raises(PuffinFormatError, match="0 deletion vectors"):
        deleted_positions(table, live_files(table))


def test_rows_that_equal_a_key_are_deleted(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 10))
    table.append(tables.rows(10, 10))
    tables.delete_equal(table, pa.table({"id": [3, 12, 99]}))
    assert seen_ids(table) == sorted({*range(20)} - {3, 12})
    tables.delete_equal(table, pa.table({"word": ["w4", "w5", None], "id": [4, 6, 7]}))
    assert seen_ids(table) == sorted({*range(20)} - {3, 4, 12})


def test_an_equality_delete_spares_rows_of_its_own_commit_and_of_later_ones(
    catalog: SqlCatalog,
) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 3))
    tables.delete_equal(table, pa.table({"id": [1, 7]}), added=tables.rows(1, 1))
    table.append(tables.rows(7, 1))
    found = deleted_positions(table, live_files(table))
    assert [len(positions) for positions in found.values()] == [1]
    assert seen_ids(table) == [0, 1, 2, 7]


def test_an_equality_delete_of_a_partition_spares_others_and_one_of_none_spares_none(
    catalog: SqlCatalog,
) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "word"))
    table = tables.create(catalog, spec=spec)
    one, two = tables.rows(0, 2), tables.rows(0, 2)
    word = table.schema().as_arrow().field("word").type
    for rows, value in ((one, "a"), (two, "b")):
        table.append(rows.set_column(1, "word", pa.array([value] * 2, word)))
    tables.delete_equal(table, pa.table({"id": [0]}), partition=Record("a"))
    assert seen_ids(table) == [0, 1, 1]
    with table.update_spec() as update:
        update.remove_field("word")
    table.refresh()
    tables.delete_equal(table, pa.table({"id": [1]}))
    assert seen_ids(table) == [0]


def test_columns_of_keys_may_be_renamed_promoted_dropped_and_younger_than_files(
    catalog: SqlCatalog,
) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 6))
    with table.update_schema() as update:
        update.add_column("count", IntegerType())
        update.rename_column("word", "name")
    table.refresh()
    # Rows from before the column have null in it, and null equals null.
    keys = {"name": ["w1", "w2"], "count": pa.array([None, 5], pa.int32())}
    tables.delete_equal(table, pa.table(keys))
    assert seen_ids(table) == [0, 2, 3, 4, 5]
    with table.update_schema() as update:
        update.update_column("count", LongType())
        update.delete_column("name")
    table.refresh()
    assert seen_ids(table) == [0, 2, 3, 4, 5]


def test_keys_by_a_column_that_the_delete_file_lacks_are_refused(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 5))
    tables.delete_equal(table, pa.table({"x": [1]}), field_ids=[99])
    with pytest.raises(UnsupportedTableError, match="field id 99"):
        deleted_positions(table, live_files(table))


def test_equality_deletes_in_avro_are_refused_where_they_reach_a_live_file(
    catalog: SqlCatalog,
) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 5))
    path = live_files(table)[0].path
    content = DataFileContent.EQUALITY_DELETES
    tables.delete_positions(table, {path: [0]}, content=content, file_format=FileFormat.AVRO)
    with pytest.raises(UnsupportedTableError, match="rewrite_data_files"):
        live_files(table)
    # A compaction applies them but may leave their manifests behind.
    table.overwrite(tables.rows(0, 4))
    assert [file.rows for file in live_files(table)] == [4]


def test_a_file_of_other_columns_than_those_it_deletes_by_is_refused(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 5))
    path = live_files(table)[0].path
    tables.delete_positions(table, {path: [0]}, content=DataFileContent.EQUALITY_DELETES)
    with pytest.raises(FormatError, match=r"has no \[1\]"):
        deleted_positions(table, live_files(table))


def test_delete_files_in_avro_are_refused_by_name(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 5))
    path = live_files(table)[0].path
    tables.delete_positions(table, {path: [0]}, file_format=FileFormat.AVRO)
    with pytest.raises(UnsupportedTableError, match="AVRO"):
        live_files(table)


def add_data_files(table: Table, *files: DataFile) -> None:
    with table.transaction() as tx, tx.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)
    table.refresh()


def data_file(path: str, **changes: object) -> DataFile:
    file = DataFile.from_args(
        **{
            "content": DataFileContent.DATA,
            "file_path": path,
            "file_format": FileFormat.PARQUET,
            "partition": Record(),
            "record_count": 5,
            "file_size_in_bytes": 100,
            **changes,
        }
    )
    file.spec_id = 0
    return file


def test_data_files_other_than_parquet_are_refused_by_name(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    add_data_files(table, data_file("s3://there/data.orc", file_format=FileFormat.ORC))
    with pytest.raises(UnsupportedTableError, match=r"ORC, s3://there/data\.orc"):
        live_files(table)


def test_encrypted_data_files_are_refused_by_name(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    add_data_files(table, data_file("s3://there/data.parquet", key_metadata=b"key"))
    with pytest.raises(UnsupportedTableError, match="encrypted"):
        live_files(table)


def test_a_data_file_listed_twice_is_refused(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    file = data_file("s3://there/data.parquet")
    add_data_files(table, file, file)
    with pytest.raises(UnsupportedTableError, match="twice"):
        live_files(table)


def test_tables_of_version_1_are_read(catalog: SqlCatalog) -> None:
    table = tables.create(catalog, **{"format-version": "1"})
    table.append(tables.rows(0, 15))
    table.append(tables.rows(15, 5))
    assert {file.sequence_number for file in live_files(table)} == {0}
    assert seen_ids(table) == list(range(20))


def test_a_change_of_partitioning_leaves_older_files_live(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 3))
    with table.update_spec() as update:
        update.add_identity("word")
    table.append(tables.rows(3, 2))
    assert sorted((file.spec_id, file.partition) for file in live_files(table)) == [
        (0, ()),
        (1, ("w3",)),
        (1, ("w4",)),
    ]
    assert seen_ids(table) == tables.live_ids(table) == list(range(5))


def test_rows_of_version_3_tables_are_numbered_through_their_files(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    add_data_files(table, data_file("a", record_count=5), data_file("b", record_count=7))
    add_data_files(table, data_file("c", record_count=2))
    assert {file.first_row_id for file in live_files(table)} == {None}
    tables.number_rows(table, {1: 1000, 2: 1012})
    numbered = {file.path: file.first_row_id for file in live_files(table)}
    assert numbered == {"a": 1000, "b": 1005, "c": 1012}


def test_two_files_written_by_one_commit_are_told_apart(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    with table.transaction() as tx:
        tx.append(tables.rows(0, 5))
        tx.append(tables.rows(5, 5))
    files = live_files(table)
    assert len(files) == 2
    assert all(isinstance(file, LiveFile) for file in files)
    assert np.sum([file.rows for file in files]) == 10
