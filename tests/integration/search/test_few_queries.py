"""A query alone, answered in one call of a kernel, is answered as one that asks each shard."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from puffin_ann import open_index
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.search.conditions.ways import Way
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds
from tests.support.paths import SAMPLE

ROWS, QUERIES, K = 6000, 40, 10


@pytest.fixture(params=["l2", "cosine", "ip"])
def lately_changed(request, catalog):
    """An index of four graphs of packed nodes, some rows dead, and its table; and queries."""
    words = pq.read_table(SAMPLE, columns=["embedding"])
    rows = words.slice(0, ROWS).append_column("draw", pa.array(np.arange(ROWS) * 7919 % ROWS))
    table = catalog.create_table("demo.words", schema=rows.schema)
    table.append(rows)
    declared = builds.declaration(
        algorithm="vamana", metric=request.param, shards=4, partitions_per_shard=8, gate={}
    )
    builds.build(declared, "run")
    table.refresh().delete("draw >= 500 and draw < 900")
    queries = np.stack(words.slice(ROWS, QUERIES)["embedding"].to_numpy(zero_copy_only=False))
    return table, declared, rows, queries.astype(np.float32)


def assert_alike(index, queries, **options):
    """Hold answers to those of a search that is explained, which asks each shard for itself."""
    for number in range(len(queries)):
        for few in (queries[number : number + 1], queries[number : number + 3]):
            found = index.search(few, K, **options)
            apart = index.search(few, K, explain=True, **options)
            for name in ("query", "rank", "distance", "locator"):
                assert found.column(name).to_pylist() == apart.column(name).to_pylist()


def test_a_query_alone_is_answered_as_by_shards_one_by_one(lately_changed):
    table, _, _, queries = lately_changed
    index = open_index(table.refresh(), builds.INDEX)
    index.warm()
    assert_alike(index, queries)
    assert_alike(index, queries[:5], width=200, probe_partitions=1)
    assert_alike(index, queries[:5], width=20_000)  # as many as there are: rows are compared
    assert index._shards._few._refused <= 2 * len(queries)
    index._shards.way = Way.SIFT
    for most in (5900, 3000, 400, 30):
        assert_alike(index, queries[:10], where=f"draw < {most}")


def test_rows_that_are_equally_far_come_in_the_order_of_their_locators(lately_changed):
    table, declared, rows, queries = lately_changed
    twins = rows.slice(0, 800)
    table.refresh().append(twins)
    refresh_in_process(declared, run_id="refresh", force=True)
    index = open_index(table.refresh(), builds.INDEX)
    index.warm()
    near = np.stack(rows["embedding"].slice(0, 20).to_numpy(zero_copy_only=False))
    assert_alike(index, near.astype(np.float32))
    assert_alike(index, queries[:10])
    index._shards.way = Way.SIFT  # else one may be answered by comparing all rows, which finds more
    assert_alike(index, queries[:10], columns=["draw"], where="draw >= 0")


@pytest.fixture
def with_a_small_shard(catalog):
    """A table of three clusters, each a shard of its index, the last without packed nodes."""
    random, sizes, width = np.random.default_rng(0), (900, 900, 200), 96
    cluster = np.repeat(np.arange(3), sizes)
    vectors = (20 * np.eye(3, width)[cluster] + random.normal(size=(2000, width))).astype("f4")
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), width)
    rows = pa.table({"id": np.arange(2000), "embedding": embedding.cast(pa.list_(pa.float32()))})
    table = catalog.create_table("demo.words", schema=rows.schema)
    table.append(rows)
    builds.build(
        builds.declaration(algorithm="vamana", shards=3, partitions_per_shard=1, gate={}), "run"
    )
    return table.refresh(), vectors


def test_where_the_shards_probed_have_too_few_rows_the_others_answer(with_a_small_shard):
    table, vectors = with_a_small_shard
    query = vectors[-1:] + np.float32(0.01)
    index = open_index(table, builds.INDEX)
    index.warm()
    assert len(index.search(query, 250, probe_partitions=1)) == 250
    delete_positions(table, {table.inspect.files()["file_path"][0].as_py(): range(1804, 2000)})
    index = open_index(table.refresh(), builds.INDEX)
    index.warm()
    for options in ({}, {"probe_partitions": 1}, {"allow_fewer": True}):
        assert_alike(index, query, **options)
        assert len(index.search(query, K, **options)) == K


def test_masks_are_held_while_they_are_read(with_a_small_shard):
    """Another thread may ask by another condition, and make masks of the same one anew."""
    table, vectors = with_a_small_shard
    index = open_index(table, builds.INDEX)
    index.warm()
    index._shards.way = Way.SIFT
    few = index._shards._few
    where, query = "id >= 0 and id < 300", vectors[10:11] + np.float32(0.01)
    allowed_rows = index.search(query, 300, where=where, exhaustive=True)
    distances = dict(zip(*places_and_distances(allowed_rows), strict=True))
    take, others = few._several, []

    def let_go():
        few._sieves = None
        for allowed in index._conditions._by_key.values():
            allowed._shards.clear()
        others.extend(np.zeros(900, np.bool_) for _ in range(50))
        return type(take).take(take)

    few._several.take = let_go
    for _ in range(3):
        places, found = places_and_distances(index.search(query, K, where=where))
        assert [distances[place] for place in places] == found == sorted(found)
        assert len(set(places)) == K


def test_refusals_do_not_decide_for_all_searches_after_them(with_a_small_shard):
    table, vectors = with_a_small_shard
    index = open_index(table, builds.INDEX)
    index.warm()
    for _ in range(4):
        index.search(vectors[:1], K, width=1 << 20)  # all rows are compared
    few = index._shards._few
    refused = few._refused
    assert refused >= 2
    calls = few._calls
    for number in range(40):
        index.search(vectors[number : number + 1] + np.float32(0.01), K)
    assert few._calls == calls + 40
    assert few._refused == refused, "they were asked again, and answered"
    assert 4 * few._refused < few._calls


def test_answers_share_nothing_that_can_be_written_to(with_a_small_shard):
    table, vectors = with_a_small_shard
    index = open_index(table, builds.INDEX)
    for name in ("query", "rank"):
        (chunk,) = index.search(vectors[:2], K).column(name).chunks
        assert not any(buffer and buffer.is_mutable for buffer in chunk.buffers())


def places_and_distances(answers):
    locators = answers["locator"].to_pylist()
    return [tuple(locator.values()) for locator in locators], answers["distance"].to_pylist()


def test_no_queries_have_no_answers(with_a_small_shard):
    table, vectors = with_a_small_shard
    index = open_index(table, builds.INDEX)
    index.warm()
    assert len(index.search(vectors[:0], K)) == 0
