"""What killed runs leave on S3: objects, and uploads that nobody will complete."""

import pytest
from pyiceberg.catalog import load_catalog

from puffin_ann.errors import BadInputError
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.clean_location import clean_location
from puffin_ann.lifecycle.publish.discard import discard_refused
from puffin_ann.lifecycle.runs import build
from puffin_ann.moments import now_ms
from tests.support.lake import table_events
from tests.support.lifecycle import builds
from tests.support.servers import object_store
from tests.support.servers.other_catalogs import (
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


def test_what_a_dropped_table_left_on_s3_goes_with_its_uploads(on_s3, s3):
    catalog = on_s3("test")
    table = catalog.create_table("demo.words", schema=builds.rows([]).schema)
    table.append(builds.rows(range(60)))
    publish_versions(table, "a1", "a2")
    root = table.location()
    folder = root.removeprefix(f"s3://{object_store.BUCKET}/") + "/metadata"
    for key in (f"{folder}/ann-words-1-dead.puffin", f"{folder}/other.puffin"):
        s3.create_multipart_upload(Bucket=object_store.BUCKET, Key=key)
    with pytest.raises(BadInputError, match=r"test\.demo\.words keeps its files in"):
        clean_location("test", root, at_ms=later(1000))
    catalog.drop_table("demo.words")
    with pytest.raises(BadInputError, match="within the grace period"):
        clean_location("test", root)
    before = stored(s3, folder)

    planned = clean_location("test", root, dry_run=True, at_ms=later(1000))
    assert stored(s3, folder) == before
    done = clean_location("test", root, at_ms=later(1000))

    assert done.gone == planned.gone
    assert done.failed == ()
    assert done.uploads == (f"{root}/metadata/ann-words-1-dead.puffin",)
    ours = {key for key in before if key.endswith(".puffin") or "/_ann-staging/" in key}
    assert len(ours) >= 2
    assert stored(s3, folder) == before - ours, "metadata and manifests are the table's"
    left = s3.list_multipart_uploads(Bucket=object_store.BUCKET, Prefix=folder)["Uploads"]
    assert [upload["Key"] for upload in left] == [f"{folder}/other.puffin"]
    again = clean_location("test", root, at_ms=later(1000))
    assert (again.gone, again.uploads) == ((), ())


def stored(s3, folder) -> set[str]:
    found = s3.list_objects_v2(Bucket=object_store.BUCKET, Prefix=folder)["Contents"]
    return {stored["Key"] for stored in found if not stored["Key"].endswith("/")}
