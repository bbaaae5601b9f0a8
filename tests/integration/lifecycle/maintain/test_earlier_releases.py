"""A table whose indexes an earlier release of the library made: read, examined and followed.

`table-1.0.zip` holds all of its objects. Indexes of each algorithm were built over 180 rows and
refreshed after four were deleted and twenty added; after that one was deleted and four were added.
"""

import zipfile

import numpy as np
import pytest
from pyiceberg.catalog import load_catalog

from puffin_ann import open_index
from puffin_ann.declaration import parse_declaration
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.moments import now_ms
from tests.support.lifecycle import builds
from tests.support.paths import GOLDEN
from tests.support.servers import object_store

pytestmark = pytest.mark.slow

LOCATION = "s3://bucket/golden/words"
INDEXES = {
    "exact_l2": {},
    "vamana_cosine": {"R": 8, "L": 16, "pq_m": 4, "pq_nbits": 4},
    "hnsw_ip": {"M": 4, "ef_construction": 16},
    "ivf_pq_l2": {},
    "centroid_l2": {},
}
QUERIES = np.random.default_rng(3).normal(size=(3, builds.DIMENSION)).astype(np.float32)


def declared(name: str):
    algorithm, metric = name.rsplit("_", 1)
    shards = {} if algorithm == "centroid" else {"shards": 2, "partitions_per_shard": 2}
    data = {
        "name": name,
        "table": "golden.demo.words",
        "column": "embedding",
        "key": "id",
        "metric": metric,
        "algorithm": algorithm,
        "parameters": INDEXES[name],
        "recall_target": 0.5,
        "gate": {"queries": 10, "k": 5},
        **shards,
    }
    return parse_declaration(data, source="test")


@pytest.fixture
def table(s3, endpoint, known_catalogs, tmp_path):
    """The table, under a catalog entry of its own."""
    known_catalogs(
        "golden",
        type="sql",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        **object_store.properties(endpoint),
    )
    for page in s3.get_paginator("list_objects_v2").paginate(
        Bucket=object_store.BUCKET, Prefix="golden/"
    ):
        for found in page.get("Contents", ()):
            s3.delete_object(Bucket=object_store.BUCKET, Key=found["Key"])
    with zipfile.ZipFile(GOLDEN / "table-1.0.zip") as stored:
        names = stored.namelist()
        for name in names:
            s3.put_object(Bucket=object_store.BUCKET, Key=f"golden/{name}", Body=stored.read(name))
    newest = max(name for name in names if name.endswith(".metadata.json"))
    catalog = load_catalog("golden")
    catalog.create_namespace("demo")
    return catalog.register_table("demo.words", f"s3://{object_store.BUCKET}/golden/{newest}")


def assert_every_index_answers(table):
    head = table.refresh().current_snapshot().snapshot_id
    for name in INDEXES:
        builds.assert_answers(open_index(table, name), table, head, QUERIES, 5)


def test_its_indexes_answer_and_are_sound(table):
    assert_every_index_answers(table)
    rows = {found.index: found for found in status(table)}
    assert rows.keys() == INDEXES.keys()
    assert {found.vectors for found in rows.values()} == {196}
    then = table.current_snapshot().timestamp_ms  # by today's clock an expiry would be near
    findings = doctor(table, map(declared, INDEXES), at_ms=then).findings
    assert {found.kind for found in findings if found.is_problem} == {"stale"}


def test_its_indexes_are_refreshed_and_what_they_no_longer_need_goes(table):
    then = table.current_snapshot().timestamp_ms  # when none of its files had waited for its grace
    for name in INDEXES:
        done = refresh_in_process(declared(name), run_id="later", force=True)
        assert done["snapshot_id"] is not None
        counted = (0, 0) if name == "centroid_l2" else (4, 1)  # that one is of files, not of rows
        assert (done["rows_added"], done["rows_gone"]) == counted
    assert_every_index_answers(table)
    a_year = 365 * 86_400_000
    before = clean(table, map(declared, INDEXES), dry_run=True, at_ms=then)
    later = max(entry.timestamp_ms for entry in table.refresh().metadata.metadata_log) + a_year
    report = clean(table, map(declared, INDEXES), at_ms=later)
    assert (len(before.gone), report.failed, report.kept) == (0, (), ())
    assert len(report.gone) >= len(INDEXES)
    assert_every_index_answers(table)


def test_the_guard_gives_each_index_a_tag_and_the_file_of_all_goes(table):
    before = [entry.snapshot_id for entry in table.history()]
    (shared,) = {found.file for found in status(table)}
    assert len(guard(table, map(declared, INDEXES)).actions) == len(INDEXES)
    assert [entry.snapshot_id for entry in table.refresh().history()] == before
    assert len(own_tags(table)) == len(INDEXES)
    assert guard(table, map(declared, INDEXES)).actions == ()
    assert_every_index_answers(table)
    with_data = table.scan(row_filter="id < 3").to_arrow()
    table.append(with_data)
    later = now_ms() + 365 * 86_400_000
    assert clean(table, map(declared, INDEXES), at_ms=later).failed == ()
    assert shared not in {entry.statistics_path for entry in table.refresh().metadata.statistics}
    assert_every_index_answers(table)
