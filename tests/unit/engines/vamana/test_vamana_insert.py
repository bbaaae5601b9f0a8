"""Batches of rows added to Vamana shards that stand."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puffin_ann.blobs.shards import graph as graph_blob
from puffin_ann.engines import engine
from puffin_ann.errors import BlobFormatError, LocalCopyError, QueryError
from tests.support.indexes.graph_checks import assert_is_a_graph_all_of_which_can_be_reached
from tests.support.indexes.shard_checks import (
    METRIC_NAMES,
    assert_answers_are_sound,
    nearest,
    recall,
)

ENGINE = engine("vamana")


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


@dataclass
class Workshop:
    """Builds, inserts and opens in folders of their own."""

    root: Path
    metric: str = "l2"
    made: int = 0

    def folder(self):
        self.made += 1
        path = self.root / str(self.made)
        path.mkdir(parents=True)
        return path

    def unpacked(self, built):
        blob, path = io.BytesIO(), self.folder()
        ENGINE.encode(built, blob)
        blob.seek(0)
        ENGINE.unpack(blob, path)
        return path

    def build(self, vectors, **parameters):
        return ENGINE.build(
            vectors,
            metric=self.metric,
            parameters=ENGINE.check(parameters, vectors.shape[1]),
            norm_bound=0.0,
            seed=0,
            threads=2,
            scratch=self.folder(),
        )

    def insert(self, folder, added, *, deleted=None, threads=2, seed=0, **parameters):
        return ENGINE.insert(
            folder,
            added,
            deleted=deleted,
            parameters=ENGINE.check(parameters, None),
            norm_bound=0.0,
            seed=seed,
            threads=threads,
            scratch=self.folder(),
        )


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_added_rows_follow_and_are_found(metric, tmp_path):
    vectors, queries = normal(6000, 20), normal(100, 20, 1)
    shop = Workshop(tmp_path, metric)
    folder = shop.unpacked(shop.build(vectors[:5000]))
    graph = shop.insert(folder, vectors[5000:])
    assert_is_a_graph_all_of_which_can_be_reached(graph)
    np.testing.assert_array_equal(graph.vectors, vectors)
    shard = ENGINE.open(shop.unpacked(graph))
    answers = shard.search(queries, 10, width=60)
    assert_answers_are_sound(answers, vectors, queries, 10, metric)
    fresh = ENGINE.open(shop.unpacked(shop.build(vectors)))
    expected = nearest(vectors, queries, 10, metric)[1]
    assert (
        recall(answers[1], expected)
        >= recall(fresh.search(queries, 10, width=60)[1], expected) - 0.01
    )
    itself = shard.search(vectors[5000:], 1, width=60)
    true_nearest = nearest(vectors, vectors[5000:], 1, metric)[1]
    assert recall(itself[1], true_nearest) >= 0.99


def test_ten_rounds_are_as_good_as_a_fresh_build(tmp_path):
    vectors, queries = normal(6000, 16), normal(200, 16, 1)
    shop = Workshop(tmp_path)
    folder = shop.unpacked(shop.build(vectors[:4000]))
    for at in range(4000, 6000, 200):
        graph = shop.insert(folder, vectors[at : at + 200])
        folder = shop.unpacked(graph)
    assert_is_a_graph_all_of_which_can_be_reached(graph)
    expected = nearest(vectors, queries, 10, "l2")[1]
    found, fresh = (
        ENGINE.open(where).search(queries, 10, width=30)[1]
        for where in (folder, shop.unpacked(shop.build(vectors)))
    )
    assert recall(found, expected) >= recall(fresh, expected) - 0.01


def test_the_batch_may_lie_where_no_row_has_been(tmp_path):
    vectors = np.concatenate([normal(5000, 12), 50 + normal(1500, 12, 1)])
    queries = 50 + normal(50, 12, 2)
    shop = Workshop(tmp_path)
    graph = shop.insert(shop.unpacked(shop.build(vectors[:5000])), vectors[5000:])
    assert_is_a_graph_all_of_which_can_be_reached(graph)
    answers = ENGINE.open(shop.unpacked(graph)).search(queries, 10, width=60)
    assert recall(answers[1], nearest(vectors, queries, 10, "l2")[1]) >= 0.95


@pytest.mark.parametrize("rows", [700, 6000])
@pytest.mark.parametrize("share", [0.1, 0.6])
def test_deleted_rows_get_no_new_edges(rows, share, tmp_path):
    vectors = normal(rows, 10)
    first = rows - int(rows * share * 0.5)
    deleted = np.random.default_rng(3).random(first) < 0.3
    shop = Workshop(tmp_path)
    folder = shop.unpacked(shop.build(vectors[:first]))
    before = graph_blob.open(folder)
    graph = shop.insert(folder, vectors[first:], deleted=deleted)
    assert_is_a_graph_all_of_which_can_be_reached(graph)
    for row in range(first, rows):
        line = graph.neighbours[row, : graph.degrees[row]]
        assert not deleted[line[line < first]].any()
    for row in range(first):
        old = before.neighbours[row, : before.degrees[row]]
        new = np.setdiff1d(graph.neighbours[row, : graph.degrees[row]], old)
        assert (new >= first).all() or not deleted[new[new < first]].any()
    queries = normal(50, 10, 1)
    mask = np.concatenate([deleted, np.zeros(rows - first, bool)])
    answers = ENGINE.open(shop.unpacked(graph)).search(queries, 10, width=80, deleted=mask)
    assert_answers_are_sound(answers, vectors, queries, 10, "l2", mask)
    assert recall(answers[1], nearest(vectors, queries, 10, "l2", mask)[1]) >= 0.95


def test_a_batch_larger_than_the_shard_leaves_deleted_rows_without_edges(tmp_path):
    vectors = normal(6000, 10)
    deleted = np.arange(500) % 2 == 0
    shop = Workshop(tmp_path)
    graph = shop.insert(shop.unpacked(shop.build(vectors[:500])), vectors[500:], deleted=deleted)
    assert_is_a_graph_all_of_which_can_be_reached(graph)
    used = np.arange(graph.max_degree) < graph.degrees[:, None]
    into_deleted = np.bincount(graph.neighbours[used], minlength=6000)[:500][deleted]
    np.testing.assert_array_equal(into_deleted, 1)


def test_all_rows_may_be_deleted(tmp_path):
    vectors = normal(900, 6)
    shop = Workshop(tmp_path)
    folder = shop.unpacked(shop.build(vectors[:700]))
    graph = shop.insert(folder, vectors[700:], deleted=np.ones(700, bool))
    assert_is_a_graph_all_of_which_can_be_reached(graph)
    mask = np.arange(900) < 700
    answers = ENGINE.open(shop.unpacked(graph)).search(vectors[700:710], 3, width=40, deleted=mask)
    assert_answers_are_sound(answers, vectors, vectors[700:710], 3, "l2", mask)
    np.testing.assert_array_equal(answers[0][:, 0], np.arange(700, 710))


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_the_graph_does_not_depend_on_the_threads(metric, tmp_path):
    vectors = np.concatenate([normal(5500, 10), normal(100, 10)])
    shop = Workshop(tmp_path, metric)
    folder = shop.unpacked(shop.build(vectors[:4000], beam="pq"))
    one, three = (shop.insert(folder, vectors[4000:], threads=threads) for threads in (1, 3))
    assert one.neighbours.tobytes() == three.neighbours.tobytes()
    assert one.codes.tobytes() == three.codes.tobytes()
    assert one.entry == three.entry


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_copies_of_rows_and_of_each_other_are_found(metric, tmp_path):
    vectors = normal(1000, 12)
    added = np.concatenate([np.tile(vectors[:1], (150, 1)), np.tile(normal(3, 12, 5), (50, 1))])
    every = np.concatenate([vectors, added])
    shop = Workshop(tmp_path, metric)
    graph = shop.insert(shop.unpacked(shop.build(vectors)), added)
    assert_is_a_graph_all_of_which_can_be_reached(graph)
    queries = added[::20]
    answers = ENGINE.open(shop.unpacked(graph)).search(queries, 40, width=60)
    assert_answers_are_sound(answers, every, queries, 40, metric)
    assert recall(answers[1], nearest(every, queries, 40, metric)[1]) >= 0.95


def test_a_longer_row_makes_room_for_itself_in_inner_products(tmp_path):
    vectors = normal(3000, 8)
    vectors[2990:] *= 2
    queries = normal(20, 8, 1)
    shop = Workshop(tmp_path, "ip")
    graph = shop.insert(shop.unpacked(shop.build(vectors[:2900])), vectors[2900:])
    answers = ENGINE.open(shop.unpacked(graph)).search(queries, 10, width=80)
    assert_answers_are_sound(answers, vectors, queries, 10, "ip")
    assert recall(answers[1], nearest(vectors, queries, 10, "ip")[1]) >= 0.9
    assert np.isin(answers[0][:, 0], np.arange(2990, 3000)).any()


def test_a_narrow_search_by_inner_product_finds_as_much_after_an_insertion(tmp_path, monkeypatch):
    lengths = np.exp(0.4 * np.random.default_rng(2).standard_normal((4000, 1)))
    vectors = (normal(4000, 16) * lengths).astype(np.float32)
    queries, shop = normal(100, 16, 1), Workshop(tmp_path, "ip")
    truth = nearest(vectors, queries, 10, "ip")[1]

    def found(graph):
        shard = ENGINE.open(shop.unpacked(graph))
        return recall(shard.search(queries, 10, width=12)[1], truth)

    def grown():
        return shop.insert(shop.unpacked(shop.build(vectors[:3000])), vectors[3000:])

    whole, by_insertion = found(shop.build(vectors)), found(grown())
    monkeypatch.setattr("puffin_ann.ann.vamana.product_edges.add", lambda *_, **__: None)
    assert by_insertion >= whole - 0.03
    assert by_insertion >= found(grown()) + 0.03


@pytest.mark.parametrize("added_scale", [1e-3, 1, 2])
@pytest.mark.parametrize("scale", [1e-25, 1, 1e25])
def test_inner_products_of_any_size_can_be_built_inserted_and_asked_for(
    scale, added_scale, tmp_path
):
    vectors = normal(1200, 12) * np.float32(scale)
    vectors[1000:] *= np.float32(added_scale)
    queries = normal(20, 12, 1)
    shop = Workshop(tmp_path, "ip")
    graph = shop.insert(shop.unpacked(shop.build(vectors[:1000])), vectors[1000:])
    shard = ENGINE.open(shop.unpacked(graph))
    for asked in (queries, queries * np.float32(scale)):
        found = shard.search(asked, 10, width=80)[1]
        assert recall(found, nearest(vectors, asked, 10, "ip")[1]) >= 0.9


def test_added_rows_without_a_direction(tmp_path):
    vectors = normal(1500, 8)
    vectors[1200::7] = 0
    shop = Workshop(tmp_path, "cosine")
    graph = shop.insert(shop.unpacked(shop.build(vectors[:1200])), vectors[1200:])
    assert_is_a_graph_all_of_which_can_be_reached(graph)
    answers = ENGINE.open(shop.unpacked(graph)).search(vectors[:20], 10, width=60)
    assert_answers_are_sound(answers, vectors, vectors[:20], 10, "cosine")
    assert recall(answers[1], nearest(vectors, vectors[:20], 10, "cosine")[1]) >= 0.95


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(0, 120),
    added=st.integers(0, 150),
    dimension=st.integers(1, 4),
    spread=st.sampled_from([1, 2, 20]),
    most=st.integers(4, 10),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    metric=st.sampled_from(METRIC_NAMES),
)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_insertion_is_sound_and_whole(
    tmp_path_factory, seed, rows, added, dimension, spread, most, share, metric
):
    generator = np.random.default_rng(seed)
    every = generator.integers(-spread, spread, (rows + added, dimension)).astype(np.float32)
    deleted = generator.random(rows) < share
    shop = Workshop(tmp_path_factory.mktemp("any"), metric)
    folder = shop.unpacked(shop.build(every[:rows], R=most, L=16, pq_m=1))
    graph = shop.insert(folder, every[rows:], deleted=deleted, R=most, L=16, pq_m=1)
    assert graph.rows == rows + added
    shard = ENGINE.open(shop.unpacked(graph))
    mask = np.concatenate([deleted, np.zeros(added, bool)])
    if rows + added:
        assert_is_a_graph_all_of_which_can_be_reached(graph)
        answers = shard.search(every[:5], 3, width=30, deleted=mask)
        assert_answers_are_sound(answers, every, every[:5], 3, metric, mask)


def test_the_shard_inserted_into_is_left_as_it_is(tmp_path):
    shop = Workshop(tmp_path)
    folder = shop.unpacked(shop.build(normal(400, 5)))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    shop.insert(folder, normal(30, 5, 1))
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_does_not_fit_is_refused(tmp_path):
    shop = Workshop(tmp_path)
    folder = shop.unpacked(shop.build(normal(100, 5)))
    with pytest.raises(BlobFormatError, match="5 dimensions"):
        shop.insert(folder, normal(10, 6))
    with pytest.raises(QueryError, match="deleted"):
        shop.insert(folder, normal(10, 5), deleted=np.zeros(99, bool))
    (folder / "space.npy").write_bytes(b"short")
    with pytest.raises(LocalCopyError, match="not a whole unpacked shard"):
        shop.insert(folder, normal(10, 5))
