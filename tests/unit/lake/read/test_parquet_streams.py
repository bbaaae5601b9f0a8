"""Arrow's threads never free what is Python's: as the interpreter ends, that aborts the process."""

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.fsspec import FsspecFileIO

from puffin_ann.lake.read.data.column_chunks import KEPT, ChunkReader, DataFile, RowGroup
from puffin_ann.lake.read.errors import open_parquet
from puffin_ann.lake.store.objects import ObjectStream
from puffin_ann.lake.store.sparse_file import SparseFile

ROWS = 40
NAMES = ["a", "b", "c"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A data file with three columns in two row groups."""
    path = tmp_path / "data.parquet"
    columns = {name: np.arange(ROWS) + at for at, name in enumerate(NAMES)}
    pq.write_table(pa.table(columns), path, row_group_size=ROWS // 2)
    return path


def threads_of(monkeypatch: pytest.MonkeyPatch, stream: type) -> set[int]:
    """Return the threads that read from streams of a type, from now on."""
    seen: set[int] = set()
    read = stream.read

    def noting(self, *args):
        seen.add(threading.get_ident())
        return read(self, *args)

    monkeypatch.setattr(stream, "read", noting)
    return seen


@pytest.mark.parametrize("way", ["row group", "batches"])
def test_a_stream_of_python_s_is_read_by_the_asking_thread_alone(path, monkeypatch, way):
    seen = threads_of(monkeypatch, ObjectStream)
    with open_parquet(FsspecFileIO({}), str(path)) as parquet:
        if way == "row group":
            groups = [parquet.read_row_group(at, columns=NAMES) for at in range(2)]
            read = pa.concat_tables(groups)
        else:
            read = pa.Table.from_batches(parquet.iter_batches(batch_size=7, columns=NAMES))
    assert read["c"].to_pylist() == list(range(2, ROWS + 2))
    assert seen == {threading.get_ident()}


def test_column_chunks_are_decoded_by_the_asking_thread_alone(path, tmp_path, monkeypatch):
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", pa.schema([("a", pa.int64())]))
    seen = threads_of(monkeypatch, SparseFile)
    KEPT.clear()
    group = RowGroup(DataFile(str(path), path.stat().st_size), 1)
    ((_, columns),) = ChunkReader(table).columns([(group, NAMES)])
    assert columns["b"].to_pylist() == list(range(ROWS // 2 + 1, ROWS + 1))
    assert seen == {threading.get_ident()}
