"""What killed runs leave on S3: objects, and uploads that nobody will complete."""

import pytest
from pyiceberg.catalog import load_catalog

from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.publish.discard import discard_refused
from puffin_ann.lifecycle.runs import build
from puffin_ann.moments import now_ms
from tests.support import builds, object_store, table_events
from tests.support.other_catalogs import (
    advised,
    assert_whole,
    catalog_beside,
    commit,
    going,
    kept,
    later,
    publish_versions,
    register,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def on_s3(endpoint, tmp_path, known_catalogs):
    """Two catalogs over one warehouse on S3, by their names."""

    def connect(name):
        properties = object_store.properties(endpoint)
        warehouse = f"s3://{object_store.BUCKET}/lifetime-of-two"
        return catalog_beside(
            known_catalogs, tmp_path, name, **{**properties, "warehouse": warehouse}
        )

    return connect


def test_what_a_second_catalog_needs_stays_on_s3(on_s3):
    table = on_s3("test").create_table("demo.words", schema=builds.rows([]).schema)
    table.append(builds.rows(range(60)))
    (first,) = publish_versions(table, "a1")
    theirs = register(on_s3("other"), table.refresh().metadata_location)
    commit(theirs, "ours, too")
    (second,) = publish_versions(theirs, "b1")
    publish_versions(table, "a2", "a3")

    discard_refused(table, second)  # as a run does that made the same file, and was refused
    report = clean(table, at_ms=later(1000))

    assert {first, second} <= kept(report).keys()
    assert going(report) == {}
    assert_whole(theirs)
    clean(theirs, at_ms=later(1000))
    assert_whole(table)
    files = advised(report)
    assert theirs.metadata_location.rpartition("/")[2] in files
    clean(table, at_ms=later(1000), forget=files)
    assert table_events.index_files(table).isdisjoint({first, second})


def test_uploads_and_staging_of_killed_runs_go_after_the_grace(
    endpoint, s3, tmp_path, known_catalogs
):
    known_catalogs(
        "test",
        type="sql",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"s3://{object_store.BUCKET}/lifetime",
        **object_store.properties(endpoint),
    )
    catalog = load_catalog("test")
    catalog.create_namespace("demo")
    table = catalog.create_table("demo.words", schema=builds.rows([]).schema)
    table.append(builds.rows(range(60)))
    path = table_events.publish(table, "a")
    folder = table.location().removeprefix(f"s3://{object_store.BUCKET}/") + "/metadata"
    killed = build.plan_build(builds.declaration(), run_id="killed", overrides={"force": True})
    builds.run_stages(killed)
    for key in (f"{folder}/ann-words-1-dead.puffin", f"{folder}/other.puffin"):
        s3.create_multipart_upload(Bucket=object_store.BUCKET, Key=key)

    assert clean(table).gone == ()
    report = clean(table, at_ms=now_ms() + 25 * table_events.HOUR_MS)

    assert report.failed == ()
    assert sorted(orphan.kind for orphan in report.gone) == ["staging", "upload"]
    left = s3.list_multipart_uploads(Bucket=object_store.BUCKET, Prefix=folder)["Uploads"]
    assert [stored_object["Key"] for stored_object in left] == [f"{folder}/other.puffin"]
    keys = s3.list_objects_v2(Bucket=object_store.BUCKET, Prefix=folder)["Contents"]
    staged = [key["Key"] for key in keys if "/_ann-staging/" in key["Key"]]
    assert [key for key in staged if "/_lease-" not in key] == []  # leases tell who was last
    assert table_events.index_files(table) == {path}
    table_events.assert_alive(table)
