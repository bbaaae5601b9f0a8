"""Shards that are not on local disk are searched by ranges: rightly, and of few bytes."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puffin_ann import open_index
from puffin_ann.errors import QueryError
from puffin_ann.lifecycle.build import gate
from puffin_ann.lifecycle.maintain.gather import gather
from puffin_ann.search.explain.explanation import explanation_of
from puffin_ann.search.explain.tree import as_text
from puffin_ann.search.shards.cold import decide, scan
from puffin_ann.search.shards.cold import tier as cold_tier
from puffin_ann.search.shards.opening import opened as opened_shards
from puffin_ann.settings import settings as of_process
from tests.support.falsified.damage import corrupt, forget_cache, report
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds, refreshes

QUERIES = np.random.default_rng(3).normal(size=(4, builds.DIMENSION)).astype(np.float32)
ENGINES = ("exact", "vamana", "hnsw", "ivf_pq")
FEW = 2


@pytest.fixture(autouse=True)
def any_shard(monkeypatch):
    """However small, a shard that is not on local disk is searched by ranges."""
    monkeypatch.setenv("PUFFIN_ANN_RANGES_MIN_BYTES", "0")
    of_process.cache_clear()
    yield
    monkeypatch.undo()
    of_process.cache_clear()


@pytest.fixture
def few_cells(monkeypatch):
    """The gate finds that two cells are enough."""
    monkeypatch.setattr(gate, "choose_scanned_cells", lambda *_, **__: (FEW, 1.0))


@pytest.fixture
def never_brought(monkeypatch):
    """From when it is called no shard is brought, so that every answer is made of ranges."""

    def refuse(*_: object) -> None:
        raise AssertionError("a shard was brought")

    return lambda: monkeypatch.setattr(opened_shards, "load_shard", refuse)


@pytest.fixture
def fresh_words(catalog):
    """Makes a table of 60 rows, in the place of the one before."""

    def make():
        if catalog.table_exists("demo.words"):
            catalog.drop_table("demo.words")
        table = catalog.create_table(
            "demo.words",
            schema=builds.rows([]).schema,
            properties={"write.parquet.row-group-limit": "10"},
        )
        table.append(builds.rows(range(30)))
        table.append(builds.rows(range(30, 60)))
        return table

    return make


def declared(algorithm="exact", **changes):
    changes = {"shards": 2, "partitions_per_shard": 4, **changes}
    return refreshes.declared(algorithm, **changes)


def answers_of(found, number):
    here = found.filter(pa.compute.equal(found.column("query"), number))
    return here.column("id").to_pylist(), here.column("distance").to_numpy()


def assert_exact(table, k=5, metric="l2", **options):
    """By ranges of all cells, a search answers what brute force does."""
    forget_cache()
    index = open_index(table, builds.INDEX, cache="none", **options)
    found = index.search(QUERIES, k, columns=["id"], allow_fewer=True)
    ids, vectors = builds.live(table, index.view.snapshot_id)
    for number, query in enumerate(QUERIES):
        exact = builds.distances(metric, query, vectors)
        mine, distances = answers_of(found, number)
        np.testing.assert_allclose(distances, np.sort(exact)[:k], rtol=1e-6, atol=1e-6)
        place = {key: at for at, key in enumerate(ids.tolist())}
        assert len(set(mine)) == len(mine) == min(k, len(ids))
        np.testing.assert_allclose(distances, exact[[place[key] for key in mine]], rtol=1e-6)
    return index, report(found)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize(
    ("algorithm", "form"),
    [*((algorithm, "float32") for algorithm in ENGINES), ("vamana", "float16"), ("ivf_pq", "int8")],
)
def test_ranges_of_all_cells_are_exact(words, never_brought, algorithm, form, metric):
    builds.build(declared(algorithm, metric=metric, vectors=form), "build")
    never_brought()
    _, told = assert_exact(words.refresh(), metric=metric)
    assert told["bytes_by_ranges"] > 0


def test_what_is_deleted_is_not_answered_by_ranges(words, never_brought):
    builds.build(declared(), "build")
    never_brought()
    delete_positions(words, {words.refresh().inspect.files()["file_path"][0].as_py(): [0, 1, 2]})
    assert_exact(words.refresh())


@pytest.mark.parametrize("layers", ["layered", None])
def test_tombstones_deltas_and_inserted_rows_are_answered(words, layers, request):
    if layers:
        request.getfixturevalue(layers)
    index = declared("vamana", refresh={"delta_ratio": 0.2}, rebuild={"tombstone_ratio": 0.9})
    builds.build(index, "build")
    words.refresh().append(builds.rows(range(60, 64)))
    refreshes.refresh(words, index, "delta")
    assert_exact(words.refresh())
    words.delete("id < 5")
    refreshes.refresh(words, index, "deletes")
    assert_exact(words.refresh())
    words.append(builds.rows(range(64, 90)))
    done = refreshes.refresh(words, index, "merge")
    assert "merge" in done["reason"] or done["action"] == "merge"
    found, told = assert_exact(words.refresh())
    assert told["bytes_by_ranges"] > 0
    assert not found._shards._ranges.tier.shards.whole, (
        "inserted rows are in the order of cells, too"
    )


def test_few_cells_are_few_bytes(words, few_cells):
    builds.build(declared("vamana", partitions_per_shard=8), "build")
    forget_cache()
    index = open_index(words.refresh(), builds.INDEX, cache="none")
    found = index.search(QUERIES[:1], 3)
    opened = index._shards._ranges.tier.shards._opened
    asked = sum(len(shard.starts.cells) for shard in opened.values())
    assert opened
    assert asked >= FEW
    assert not index._shards._opened.kept, "no shard was brought"
    assert len(found) == 3


def test_of_ranges_nothing_is_expected_and_the_tree_says_so(words, few_cells):
    builds.build(declared(), "run")
    forget_cache()
    index = open_index(words.refresh(), builds.INDEX, cache="none")
    told = explanation_of(index.search(QUERIES[:1], 3, explain=True))
    assert {way.way for way in told.shards} == {"ranges"}
    assert {(way.seconds, way.estimated_seconds) for way in told.shards} == {(None, None)}
    lines = [line for line in as_text(told).splitlines() if "ranges read, not on local" in line]
    assert len(lines) == len(told.shards)
    assert all(line.endswith(", nothing expected: the store decides") for line in lines)
    assert "expected: the time of one thread" not in as_text(told)


def test_more_is_read_where_few_cells_have_not_k_rows(words, few_cells):
    builds.build(declared("vamana", partitions_per_shard=8), "build")
    rows = len(builds.live(words.refresh())[0])
    for k in (1, 7, rows, rows + 3):
        forget_cache()
        index = open_index(words, builds.INDEX, cache="none")
        found = index.search(QUERIES, k, columns=["id"], allow_fewer=True)
        for number in range(len(QUERIES)):
            ids, _ = answers_of(found, number)
            assert len(ids) == len(set(ids)) == min(k, rows)


def test_the_answer_of_a_query_does_not_depend_on_the_others(words, few_cells):
    builds.build(declared("vamana", partitions_per_shard=8), "build")
    forget_cache()
    index = open_index(words.refresh(), builds.INDEX, cache="none")
    together = index.search(QUERIES, 3, columns=["id"])
    for number, query in enumerate(QUERIES):
        alone = index.search(query, 3, columns=["id"])
        assert answers_of(together, number)[0] == answers_of(alone, 0)[0]


def test_a_width_is_for_shards_on_local_disk(words):
    builds.build(declared("vamana"), "build")
    for options in ({"width": 20}, {"probe_partitions": 2}, {"exhaustive": True}):
        forget_cache()
        index = open_index(words.refresh(), builds.INDEX, cache="none")
        assert report(index.search(QUERIES, 3, **options))["bytes_by_ranges"] == 0


def test_a_shard_that_is_asked_often_is_brought(words, monkeypatch):
    builds.build(declared("vamana"), "build")
    forget_cache()
    index = open_index(words.refresh(), builds.INDEX, cache="lazy")
    monkeypatch.setattr(cold_tier, "MOST_SHARE", 1.0)
    monkeypatch.setattr(cold_tier, "BRING_SHARE", 1000.0)
    index.search(QUERIES, 3)
    assert not index._shards._opened.kept
    monkeypatch.setattr(cold_tier, "BRING_SHARE", 0.0)
    index.search(QUERIES, 3)
    deadline = time.monotonic() + 30
    while len(index._shards._opened.kept) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert report(index.search(QUERIES, 3))["bytes_by_ranges"] == 0
    assert index.cache_statistics.read_by_ranges > 0


def test_what_was_warmed_is_not_read_again(words):
    builds.build(declared("vamana"), "build")
    forget_cache()
    index = open_index(words.refresh(), builds.INDEX, cache="none")
    index.warm()
    found = index.cache_statistics
    assert (found.filled > 0, found.filled_bytes > 0, found.read_by_ranges) == (True, True, 0)
    again = open_index(words, builds.INDEX, cache="none")
    assert report(again.search(QUERIES, 3))["bytes_by_ranges"] == 0
    assert again.cache_statistics.hits > 0


@pytest.mark.parametrize("kind", ["graph", "rows"])
def test_damage_of_a_range_is_told_and_answered_otherwise(words, kind):
    builds.build(declared("vamana"), "build")
    path = refreshes.newest(words.refresh()).path.removeprefix("file://")
    corrupt(path, kind)
    forget_cache()
    index = open_index(words, builds.INDEX, cache="none")
    _ids, vectors = builds.live(words)
    found = index.search(QUERIES, 5, columns=["id"])
    for number, query in enumerate(QUERIES):
        _mine, distances = answers_of(found, number)
        exact = np.sort(builds.distances("l2", query, vectors))[:5]
        np.testing.assert_allclose(distances, exact, rtol=1e-6, atol=1e-6)
    assert len(report(found)["damaged"]) == 1


def test_a_batch_that_wants_too_much_has_shards_brought(words, monkeypatch):
    builds.build(declared("vamana"), "build")
    forget_cache()
    monkeypatch.setattr(decide, "MOST_BYTES", 16)
    index = open_index(words.refresh(), builds.INDEX, cache="none")
    assert report(index.search(QUERIES, 3))["bytes_by_ranges"] == 0


def test_a_mode_that_is_none_is_refused(words):
    builds.build(declared("vamana"), "build")
    with pytest.raises(QueryError, match="cache is 'warm'; allowed: 'full', 'lazy', 'none'"):
        open_index(words.refresh(), builds.INDEX, cache="warm")


STEPS = st.lists(
    st.sampled_from(["append", "delete", "update", "refresh", "merge", "gather"]), max_size=6
)


FORMS = st.sampled_from([("vamana", "float32"), ("vamana", "float16"), ("ivf_pq", "int8")])


@given(steps=STEPS, seed=st.integers(0, 1000), form=FORMS)
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_whatever_became_of_the_rows_ranges_answer_them(fresh_words, layered, steps, seed, form):
    words = fresh_words()
    whole = partial(declared, form[0], vectors=form[1], rebuild={"tombstone_ratio": 0.9})
    index = whole(refresh={"delta_ratio": 0.3})
    builds.build(index, "build")
    next_id, rng = 1000, np.random.default_rng(seed)
    for number, step in enumerate(steps):
        words.refresh()
        ids = builds.live(words)[0]
        some = rng.choice(ids, min(6, len(ids)), replace=False).tolist()
        if step in ("append", "update"):
            words.append(builds.rows(range(next_id, next_id + 6), seed=seed))
            next_id += 6
        if step in ("delete", "update") and len(ids) > 20:
            words.delete(f"id in ({', '.join(map(str, some))})")
        if step == "gather":
            gather(words, builds.INDEX)
        if step in ("refresh", "merge"):
            delta_ratio = 0.3 if step == "refresh" else 0.0001
            chosen = whole(refresh={"delta_ratio": delta_ratio})
            refreshes.refresh(words, chosen, f"step {number}")
        assert_exact(words.refresh())


def test_threads_share_an_index(words, few_cells, monkeypatch):
    builds.build(declared("vamana", partitions_per_shard=8), "build")
    forget_cache()
    monkeypatch.setattr(scan, "MOST_OPEN", 1)
    index = open_index(words.refresh(), builds.INDEX, cache="none")
    queries = np.random.default_rng(8).normal(size=(40, builds.DIMENSION)).astype(np.float32)

    def ask(query):
        return index.search(query, 3, columns=["id"]).column("id").to_pylist()

    alone = list(map(ask, queries))
    again = open_index(words, builds.INDEX, cache="none")
    with ThreadPoolExecutor(8) as threads:
        index = again
        assert list(threads.map(ask, queries)) == alone
    assert not again._shards._opened.kept
