"""A real S3 server that fails: what its clients say of it is told apart as it is anywhere else."""

import pytest
from pyiceberg.catalog import load_catalog

from puffin_ann import open_index
from puffin_ann.errors import StoreDeniedError, StoreUnavailableError
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lake.store.objects import object_exists, read_object
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.search.version.versions import require_versions
from puffin_ann.settings import settings
from tests.support.lake import table_events
from tests.support.lifecycle import builds
from tests.support.servers.object_store import properties

DECLARED = builds.declaration(refresh={"min_rows": 1})
INDEX_FILES = r"/ann-words_index-[^/]*\.puffin"


@pytest.fixture
def lake(proxy, known_catalogs, tmp_path, monkeypatch):
    """An index of a table on S3, behind the proxy; five rows have come since."""
    known_catalogs(
        "test",
        type="sql",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"s3://bucket/{tmp_path.name}",
        **properties(proxy.endpoint),
    )
    catalog = load_catalog("test")
    catalog.create_namespace("demo")
    table = catalog.create_table("demo.words", schema=builds.rows([]).schema)
    table.append(builds.rows(range(40)))
    builds.build(DECLARED, "first")
    table.refresh().append(builds.rows(range(40, 45)))
    monkeypatch.setenv("PUFFIN_ANN_STORE_SECONDS", "0")  # the clients themselves ask three times
    settings.cache_clear()
    return proxy


def test_index_files_behind_an_outage_are_not_built_again(lake):
    before = require_versions(load_table(DECLARED.table), DECLARED.name)
    for fault in ("500", "503", "403", "reset", "cut"):
        lake.fail(fault, f"GET .*{INDEX_FILES}" if fault == "cut" else INDEX_FILES)
        kind = StoreDeniedError if fault == "403" else StoreUnavailableError
        with pytest.raises(kind, match=rf"s3://bucket/\S*{INDEX_FILES}"):
            refresh_in_process(DECLARED, run_id=f"during-{fault}")
        lake.reset()
    after = require_versions(load_table(DECLARED.table), DECLARED.name)
    assert [run.run_id for run in after] == [run.run_id for run in before]
    assert refresh_in_process(DECLARED, run_id="afterwards")["action"] == "refresh"
    table = load_table(DECLARED.table)
    head = table.current_snapshot().snapshot_id
    builds.assert_answers(open_index(table, DECLARED.name), table, head, table_events.QUERIES, 5)


def test_a_store_that_refuses_its_key_is_named_and_not_the_catalog(lake):
    lake.fail("403", "HTTP")
    with pytest.raises(StoreDeniedError, match=r"metadata file s3://bucket/\S*\.metadata\.json"):
        status(load_table(DECLARED.table))


def test_a_listing_that_fails_cleans_nothing(lake):
    table = load_table(DECLARED.table)
    files = [entry.statistics_path for entry in table.metadata.statistics]
    lake.fail("503", "list-type=2")
    with pytest.raises(StoreUnavailableError):
        clean(table, [DECLARED], grace="0s")
    lake.reset()
    assert all(object_exists(table.io, file) for file in files)


def test_only_404_says_that_nothing_is_there(lake):
    io, nothing = load_table(DECLARED.table).io, "s3://bucket/nothing"
    assert not object_exists(io, nothing)
    with pytest.raises(FileNotFoundError):
        read_object(io, nothing)
    lake.fail("403", "/bucket/nothing")
    with pytest.raises(StoreDeniedError):
        object_exists(io, nothing)
