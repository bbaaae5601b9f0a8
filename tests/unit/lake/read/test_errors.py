"""Parquet files that cannot be read: every error names the file, and is one of ours."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import DataFileError, EnvironmentProblemError, PuffinAnnError
from puffin_ann.lake.read.data.parquet import dimension_of, open_file, read_vectors, row_group_rows
from puffin_ann.lake.read.data.vector_column import VectorColumn
from puffin_ann.lake.read.errors import reading
from puffin_ann.lake.read.files.live_files import LiveFile

IO = PyArrowFileIO()
COLUMN = VectorColumn(1, "v", "float")
ROWS = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A data file of 40 vectors of 4 numbers, in two row groups."""
    kind = pa.list_(pa.field("element", pa.float32(), metadata={"PARQUET:field_id": "2"}))
    schema = pa.schema([pa.field("v", kind, metadata={"PARQUET:field_id": "1"})])
    vectors = np.random.default_rng(1).normal(size=(ROWS, 4)).astype(np.float32)
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table([pa.array(vectors.tolist(), kind)], schema), path, row_group_size=20)
    return path


def read_all(path: Path) -> None:
    """Read a file in every way that runs do."""
    file = LiveFile(str(path), path.lstat().st_size, 1, ROWS)
    for ask in (
        lambda: dimension_of(IO, [file], COLUMN),
        lambda: row_group_rows(IO, str(path)),
        lambda: [read_vectors(IO, str(path), group, COLUMN, 4) for group in range(2)],
    ):
        ask()


def test_a_sound_file_is_read(path):
    read_all(path)


@pytest.mark.parametrize("kind", ["directory", "loop"])
def test_what_is_no_file_is_named(path, kind):
    path.unlink()
    if kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(path)
    with pytest.raises(EnvironmentProblemError, match=rf"data file {path} cannot be read: ."):
        open_file(IO, str(path))


def test_a_file_that_is_gone_is_named(path):
    path.unlink()
    with pytest.raises(EnvironmentProblemError, match=f"data file {path} is gone from the store"):
        open_file(IO, str(path))


def test_broken_pages_are_named_by_what_reads_them(path):
    data = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(0).column(0).dictionary_page_offset or 4
    data[start : start + 64] = b"\xff" * 64
    path.write_bytes(data)
    for ask in (
        lambda: dimension_of(IO, [LiveFile(str(path), len(data), 1, ROWS)], COLUMN),
        lambda: read_vectors(IO, str(path), 0, COLUMN, 4),
    ):
        with pytest.raises((EnvironmentProblemError, DataFileError), match=str(path)):
            ask()


def test_any_byte_may_be_wrong(path):
    sound, chance = path.read_bytes(), random.Random(3)
    refused: list[str] = []
    for _ in range(400):
        data = bytearray(sound)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
        try:
            read_all(path)
        except PuffinAnnError as error:
            refused.append(str(error))
    assert len(refused) > 100
    assert [message for message in refused if str(path) not in message] == []


def test_errors_of_ours_pass():
    with pytest.raises(DataFileError, match="mine"), reading("x"):
        raise DataFileError("mine")
