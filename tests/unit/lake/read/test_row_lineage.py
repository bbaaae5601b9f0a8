"""Row ids and the numbers of last updates: stored in a file, or inherited from it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from puffin_ann.errors import UnsupportedTableError
from puffin_ann.lake.read.live_files import LiveFile
from puffin_ann.lake.read.row_lineage import row_lineage


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
