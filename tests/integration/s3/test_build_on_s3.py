"""A whole build, and the next one, of a table whose warehouse is on S3."""

import numpy as np
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from puffin_ann import open_index
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.settings import settings
from tests.support.lifecycle import builds
from tests.support.servers import object_store

pytestmark = pytest.mark.slow

QUERIES = np.random.default_rng(5).normal(size=(6, builds.DIMENSION)).astype(np.float32)


@pytest.fixture
def catalog(tmp_path, proxy, monkeypatch):
    """A catalog that the library finds by name, with its data behind the proxy."""
    settled = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{object_store.BUCKET}/warehouse",
        **object_store.properties(proxy.endpoint),
    }
    for key, value in settled.items():
        name = key.upper().replace(".", "__").replace("-", "_")
        monkeypatch.setenv(f"PYICEBERG_CATALOG__TEST__{name}", value)
    monkeypatch.setenv("PUFFIN_ANN_CACHE_DIR", str(tmp_path / "cache"))
    # PyIceberg and the library read the environment once.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    settings.cache_clear()
    catalog = load_catalog("test")
    catalog.create_namespace("demo")
    yield catalog
    settings.cache_clear()


def keys(s3, table) -> list[str]:
    prefix = table.location().removeprefix(f"s3://{object_store.BUCKET}/")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=object_store.BUCKET, Prefix=prefix)
    return [stored_object["Key"] for page in pages for stored_object in page.get("Contents", ())]


def test_indexes_are_built_and_carried_in_a_table_on_s3(catalog, s3, proxy):
    table = catalog.create_table("demo.words", schema=builds.rows([]).schema)
    table.append(builds.rows(range(60)))

    builds.build(builds.declaration(name="first"), "a")
    builds.build(builds.declaration(name="second", metric="ip"), "b")
    table.refresh().append(builds.rows(range(60, 90)))
    builds.build(builds.declaration(name="first"), "c")

    table.refresh()
    current = table.current_snapshot().snapshot_id
    for name in ("first", "second"):
        builds.assert_answers(open_index(table, name), table, current, QUERIES, 5)
    assert len(proxy.parts()) >= 3, "each file was put together by the store"
    puffins = [key for key in keys(s3, table) if key.endswith(".puffin")]
    assert len(puffins) == 3
    staged = [key for key in keys(s3, table) if "/_ann-staging/" in key]
    # The lease stays, and an object by which Arrow says that its folder is there.
    assert not [key for key in staged if "/_lease-" not in key and not key.endswith("/")]
    assert not s3.list_multipart_uploads(Bucket=object_store.BUCKET, Prefix="warehouse/demo").get(
        "Uploads"
    )


def test_a_file_larger_than_a_part_is_copied_by_the_store(catalog, s3, proxy):
    rows = builds.rows(range(60)).take(np.arange(300_000) % 60)
    table = catalog.create_table("demo.many", schema=rows.schema)
    table.append(rows)
    declared = builds.declaration(table="test.demo.many", shards=1, partitions_per_shard=2)

    plan = builds.run.plan_build(declared, run_id="run")
    builds.run_stages(plan)
    proxy.reset()
    published = builds.publish.publish(RunRef.planned(plan))

    assert published.bytes_written > 12_000_000
    assert proxy.bytes < 2_000_000
    builds.publish.report(plan)
    index = open_index(table.refresh(), builds.INDEX)
    assert index.search(QUERIES, 3, columns=["id"]).num_rows == 3 * len(QUERIES)
