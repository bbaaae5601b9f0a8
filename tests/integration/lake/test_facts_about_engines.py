"""Facts about the engines that the design stands on: if one changes, so may the design."""

import time

import pytest
import requests
from pydantic import ValidationError
from pyiceberg.exceptions import ValidationError as IcebergValidationError

from puffin_ann.errors import UnsupportedTableError
from puffin_ann.lake.catalog.tables import load_table
from tests.support.lifecycle import builds

pytestmark = pytest.mark.slow

OURS = "puffin-ann-graph-v1"
THETA = "apache-datasketches-theta-v1"
EXPIRE = (
    "CALL {c}.system.expire_snapshots(table => '{n}', "
    "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
)


@pytest.fixture
def words(rest_lake):
    return rest_lake.create(builds.rows(range(20)))


def put(table, name: str) -> str:
    path = f"{table.location()}/metadata/{name}.puffin"
    with table.io.new_output(path).create() as out:
        out.write(b"PFA1" + bytes(60))
    return path


def register(lake, uri, path, snapshot_id, *blobs) -> None:
    """Set a statistics file as any client of the catalog may."""
    statistics = {
        "snapshot-id": snapshot_id,
        "statistics-path": path,
        "file-size-in-bytes": 64,
        "file-footer-size-in-bytes": 28,
        "blob-metadata": [
            {
                "type": kind,
                "snapshot-id": snapshot_id,
                "sequence-number": 1,
                "fields": fields,
                "properties": {"ndv": "7"},
            }
            for kind, fields in blobs
        ],
    }
    answer = requests.post(
        f"{uri}/v1/namespaces/{lake.namespace}/tables/words",
        json={
            "requirements": [],
            "updates": [
                {"action": "set-statistics", "snapshot-id": snapshot_id, "statistics": statistics}
            ],
        },
        timeout=30,
    )
    assert answer.status_code == 200, answer.text


def exists(table, path) -> bool:
    return table.io.new_input(path).exists()


def remove_orphans(lake, jvm) -> None:
    """The Java action: the SQL procedure refuses to look at files of the last 24 hours."""
    java_table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        lake.spark._jsparkSession, lake.named()
    )
    actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(lake.spark._jsparkSession)
    actions.deleteOrphanFiles(java_table).olderThan(
        int(time.time() * 1000) + 60_000
    ).usePrefixListing(True).execute()


def test_pyiceberg_cannot_load_a_table_that_lists_a_blob_type_it_does_not_know(
    rest_lake, rest_uri, words
):
    head = words.current_snapshot().snapshot_id
    register(rest_lake, rest_uri, put(words, "ours"), head, (OURS, [3]))
    assert rest_lake.sql("SELECT count(*) FROM {t}")[0][0] == 20
    with pytest.raises((ValidationError, IcebergValidationError)):
        rest_lake.load()
    with pytest.raises(UnsupportedTableError, match="cannot read the metadata"):
        load_table(rest_lake.named())


def test_every_engine_loads_a_table_whose_statistics_list_no_blob(rest_lake, rest_uri, words):
    head = words.current_snapshot().snapshot_id
    register(rest_lake, rest_uri, put(words, "ours"), head)
    assert rest_lake.load().scan().to_arrow().num_rows == 20
    assert rest_lake.sql("SELECT count(*) FROM {t}")[0][0] == 20


def test_a_listed_blob_without_fields_breaks_sparks_optimizer(rest_lake, rest_uri, words):
    head = words.current_snapshot().snapshot_id
    register(rest_lake, rest_uri, put(words, "ours"), head, (THETA, []))
    with pytest.raises(Exception, match=r"NoSuchElement|IndexOutOfBounds|out of bounds"):
        rest_lake.distinct_counts()


def test_compute_table_stats_throws_another_entry_out(rest_lake, rest_uri, words):
    head = words.current_snapshot().snapshot_id
    ours = put(words, "ours")
    register(rest_lake, rest_uri, ours, head)
    rest_lake.sql("CALL {c}.system.compute_table_stats(table => '{n}', columns => array('id'))")
    [entry] = words.refresh().metadata.statistics
    assert entry.snapshot_id == head
    assert entry.statistics_path != ours
    assert exists(words, ours)


def test_orphan_removal_spares_what_statistics_name_and_nothing_else(
    rest_lake, rest_uri, words, jvm
):
    head = words.current_snapshot().snapshot_id
    registered, in_property, loose = (put(words, name) for name in ("kept", "property", "loose"))
    register(rest_lake, rest_uri, registered, head)
    words.refresh().transaction().set_properties({"ann.file": in_property}).commit_transaction()
    remove_orphans(rest_lake, jvm)
    assert exists(words, registered)
    assert not exists(words, in_property)
    assert not exists(words, loose)


def test_expiry_deletes_a_statistics_file_unless_a_surviving_snapshot_has_it_too(
    rest_lake, rest_uri, words
):
    old = words.current_snapshot().snapshot_id
    words.append(builds.rows(range(20, 25)))
    head = words.current_snapshot().snapshot_id
    alone, shared = put(words, "alone"), put(words, "shared")
    register(rest_lake, rest_uri, shared, head)
    register(rest_lake, rest_uri, shared, old)
    rest_lake.sql(EXPIRE)
    assert [entry.snapshot_id for entry in words.refresh().metadata.statistics] == [head]
    assert exists(words, shared)

    register(rest_lake, rest_uri, alone, head)
    words.append(builds.rows(range(25, 30)))
    rest_lake.sql(EXPIRE)
    assert not exists(words, alone)


def test_pyiceberg_moves_a_lost_race_to_the_new_head(rest_lake, words):
    """Its own commit would put an index snapshot on top of whatever came between."""
    other = rest_lake.load()
    words.append(builds.rows(range(20, 25)))
    other.append(builds.rows(range(25, 30)))
    assert other.refresh().current_snapshot().parent_snapshot_id == (
        words.current_snapshot().snapshot_id
    )


def test_a_catalog_accepts_statistics_in_a_slot_that_was_filled_meanwhile(
    rest_lake, rest_uri, words
):
    """Why what stood in a slot is looked at after the commit."""
    head = words.current_snapshot().snapshot_id
    first, second = put(words, "first"), put(words, "second")
    register(rest_lake, rest_uri, first, head)
    register(rest_lake, rest_uri, second, head)
    assert [entry.statistics_path for entry in words.refresh().metadata.statistics] == [second]
