"""Row ids and the numbers of last updates: stored in a file, or inherited from it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from puffin_ann.errors import UnsupportedTableError
from puffin_ann.lake.read.files.live_files import LiveFile
from puffin_ann.lake.read.identity.row_lineage import (
    may_store_lineage,
    row_lineage,
    stored_lineage,
)


def write(path: Path, **columns: tuple[int, pa.Array]) -> pq.ParquetFile:
    fields = [
        pa.field(name, array.type, metadata={"PARQUET:field_id": str(field_id)})
        for name, (field_id, array) in columns.items()
    ]
    table = pa.table([array for _, array in columns.values()], schema=pa.schema(fields))
    pq.write_table(table, path, row_group_size=2)
    return pq.ParquetFile(path)


FILE = LiveFile("f", 1, 9, 3, data_sequence_number=7, first_row_id=100)


def test_new_rows_inherit_their_lineage_from_the_file(tmp_path: Path) -> None:
    parquet = write(tmp_path / "f", id=(1, pa.array([5, 6, 7])))
    assert row_lineage(parquet, FILE, 0).tolist() == [[100, 7], [101, 7]]
    assert row_lineage(parquet, FILE, 1).tolist() == [[102, 7]]


def test_rewritten_rows_keep_their_lineage(tmp_path: Path) -> None:
    parquet = write(
        tmp_path / "f",
        id=(1, pa.array([5, 6, 7])),
        row_id=(2147483540, pa.array([41, None, 43])),
        seq=(2147483539, pa.array([3, 4, None])),
    )
    assert row_lineage(parquet, FILE, 0).tolist() == [[41, 3], [101, 4]]
    assert row_lineage(parquet, FILE, 1).tolist() == [[43, 7]]


def test_a_file_without_row_ids_is_told(tmp_path: Path) -> None:
    parquet = write(tmp_path / "f", id=(1, pa.array([5])))
    with pytest.raises(UnsupportedTableError, match="first row id"):
        row_lineage(parquet, LiveFile("f", 1, 1, 1), 0)


def test_only_what_stands_in_the_file_is_stored_lineage(tmp_path: Path) -> None:
    parquet = write(
        tmp_path / "f",
        id=(1, pa.array([5, 6, 7, 8])),
        row_id=(2147483540, pa.array([41, None, 43, 44])),
        seq=(2147483539, pa.array([3, 4, None, 5])),
    )
    lineage, is_stored = stored_lineage(parquet, "f", 0)
    assert is_stored.tolist() == [True, False]
    assert lineage[0].tolist() == [41, 3]
    assert stored_lineage(parquet, "f", 1)[1].tolist() == [False, True]


@pytest.mark.parametrize("field_id", [2147483540, 2147483539])
def test_of_one_column_without_the_other_nothing_is_known(tmp_path: Path, field_id) -> None:
    parquet = write(tmp_path / "f", one=(field_id, pa.array([41])))
    assert stored_lineage(parquet, "f", 0) is None


def test_lineage_that_is_no_number_is_told(tmp_path: Path) -> None:
    parquet = write(tmp_path / "f", row_id=(2147483540, pa.array(["41"])))
    with pytest.raises(UnsupportedTableError, match="row lineage is stored as string"):
        row_lineage(parquet, FILE, 0)


@pytest.mark.parametrize(
    ("ids", "numbers", "may"),
    [
        ([41, 42, 43], [None, None, None], False),  # changed rows
        ([41, 42, 43], [None, None, 3], True),
        ([None, None, None], [None, None, None], False),
    ],
)
def test_only_a_number_that_is_stored_may_be_that_of_another_table(
    tmp_path: Path, ids, numbers, may
) -> None:
    parquet = write(
        tmp_path / "f",
        nested=(1, pa.array([{"a": 1, "b": 2}] * 3)),
        row_id=(2147483540, pa.array(ids, pa.int64())),
        seq=(2147483539, pa.array(numbers, pa.int64())),
    )
    assert may_store_lineage(parquet) == may


def test_new_rows_store_no_lineage(tmp_path: Path) -> None:
    assert not may_store_lineage(write(tmp_path / "f", id=(1, pa.array([5]))))
