"""Columns of rows on S3: one round trip for footers not yet seen, one for the bytes."""

import numpy as np
import pytest
from pyiceberg.catalog import load_catalog

from puffin_ann.errors import StoreUnavailableError
from puffin_ann.lake.read.data.column_chunks import KEPT
from puffin_ann.lake.read.data.columns import ColumnReader, DataFile
from puffin_ann.lake.read.files.live_files import live_files
from puffin_ann.settings import settings
from tests.support.lake import tables
from tests.support.servers.object_store import BUCKET, properties

FILES = 3


@pytest.fixture
def table(proxy, known_catalogs, tmp_path):
    """Three files with row groups of 1,000 rows, behind the proxy."""
    known_catalogs(
        "test",
        type="sql",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"s3://{BUCKET}/{tmp_path.name}",
        **properties(proxy.endpoint),
    )
    catalog = load_catalog("test")
    catalog.create_namespace("demo")
    table = tables.create(catalog, row_group_rows=1000)
    for number in range(FILES):
        table.append(tables.rows(4000 * number, 4000))
    KEPT.clear()
    return table


def ask(table, ids):
    """The words of rows, and the bytes that were read."""
    files = sorted(live_files(table), key=lambda file: file.sequence_number)
    named = [DataFile(file.path, file.size) for file in files]
    ids = np.array(ids)

    def read():
        reader = ColumnReader(table, ["word"])
        rows = reader.rows(named, ids // 4000, ids % 4000 // 1000, ids % 1000)
        assert rows.column("word").to_pylist() == [f"w{i}" for i in ids]
        return reader.bytes_read

    return read


def test_columns_take_a_round_trip_for_footers_and_one_for_bytes(table, proxy):
    proxy.delay = 1.0  # a machine with much to do begins the requests of a round that much later
    for ids, rounds, requests in [
        ([5, 4_005, 8_005, 8_006], 2, 2 * FILES),
        ([2_005, 5_005], 1, 2),
        ([2_006, 8_010], 0, 0),
    ]:
        read = ask(table, ids)
        proxy.reset()
        length = read()
        assert proxy.rounds() == rounds
        assert len(proxy.requests) == requests
        assert not [line for line in proxy.requests if line.startswith("HEAD")]
        assert length < proxy.bytes if requests else length == 0


@pytest.mark.parametrize("fault", ["503", "reset", "cut"])
def test_a_store_that_fails_is_no_damage(table, proxy, monkeypatch, fault):
    monkeypatch.setenv("PUFFIN_ANN_STORE_SECONDS", "0")
    settings.cache_clear()
    read = ask(table, [5])
    proxy.fail(fault, r"GET .*\.parquet")
    with pytest.raises(StoreUnavailableError, match=r"s3://.*\.parquet"):
        read()
    proxy.reset()
    read()


def test_a_client_that_knows_no_ranges_reads_the_same(table, proxy, monkeypatch):
    """Without the package that S3 is written by, objects are opened first."""
    monkeypatch.setattr("puffin_ann.lake.store.s3._has_client", lambda: False)
    assert ask(table, [5, 4_005])() > 0
