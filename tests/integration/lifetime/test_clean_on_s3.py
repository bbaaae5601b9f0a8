"""What killed runs leave on S3: objects, and uploads that nobody will complete."""

import builds
import lives
import object_store
import pytest
from pyiceberg.catalog import load_catalog

from puffin_ann.lifecycle import run
from puffin_ann.lifecycle.clean import clean
from puffin_ann.lifecycle.inventory import now_ms

pytestmark = pytest.mark.slow


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
    path = lives.publish(table, "a")
    folder = table.location().removeprefix(f"s3://{object_store.BUCKET}/") + "/metadata"
    killed = run.plan_build(builds.declaration(), run_id="killed", overrides={"force": True})
    builds.run_stages(killed)
    for key in (f"{folder}/ann-words-1-dead.puffin", f"{folder}/other.puffin"):
        s3.create_multipart_upload(Bucket=object_store.BUCKET, Key=key)

    assert clean(table).gone == ()
    report = clean(table, at_ms=now_ms() + 25 * lives.HOUR_MS)

    assert report.failed == ()
    assert sorted(one.kind for one in report.gone) == ["staging", "upload"]
    left = s3.list_multipart_uploads(Bucket=object_store.BUCKET, Prefix=folder)["Uploads"]
    assert [one["Key"] for one in left] == [f"{folder}/other.puffin"]
    keys = s3.list_objects_v2(Bucket=object_store.BUCKET, Prefix=folder)["Contents"]
    staged = [one["Key"] for one in keys if "/ann-staging/" in one["Key"]]
    assert [key for key in staged if "/_lease-" not in key] == []  # leases tell who was last
    assert lives.index_files(table) == {path}
    lives.assert_alive(table)
