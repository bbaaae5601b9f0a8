"""What a mask that stays is searched past by: right answers, as many, and none too early."""

import gc
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from puffin_ann.ann.core import lasting_masks
from puffin_ann.ann.graph.arguments import Adjacency, Space
from puffin_ann.ann.graph.live_lists import Effort, choose
from puffin_ann.ann.vamana.packed import layout
from puffin_ann.ann.vamana.several import Several
from tests.support.indexes.several_graphs import ask_together
from tests.support.indexes.shard_checks import assert_answers_are_sound, nearest, opened, recall
from tests.support.paths import SAMPLE

ROWS, QUERIES, K = 6_000, 100, 10
WIDTHS = [10, 24, 60, 150, 400]
SHARDS = {
    "vamana by records": ("vamana", {"beam": "edges"}),
    "vamana by vectors": ("vamana", {"beam": "full"}),
    "vamana by codes": ("vamana", {"beam": "pq"}),
    "hnsw": ("hnsw", {}),
    "ivf_pq": ("ivf_pq", {}),
}
PLACES = ["anywhere", "in one cluster"]


@pytest.fixture(scope="module")
def words():
    column = pq.read_table(SAMPLE, columns=["embedding"]).column("embedding").combine_chunks()
    values = column.flatten().to_numpy().reshape(len(column), -1)
    chosen = np.random.default_rng(0).choice(len(values), ROWS + QUERIES, replace=False)
    return np.ascontiguousarray(values[chosen], np.float32)


@pytest.fixture(scope="module", params=SHARDS)
def shard(request, words, tmp_path_factory):
    algorithm, parameters = SHARDS[request.param]
    return opened(algorithm, words[:ROWS], tmp_path_factory.mktemp("shard"), **parameters)


@pytest.fixture
def hnsw(words, tmp_path):
    return opened("hnsw", words[:ROWS], tmp_path)


@pytest.fixture
def small_shards_count(monkeypatch):
    monkeypatch.setattr(lasting_masks, "LEAST_ROWS", 0)


def marked(vectors, count, place):
    order = np.random.default_rng(count).permutation(len(vectors))
    if place != PLACES[0]:
        order = np.argsort(((vectors - vectors[order[0]]) ** 2).sum(axis=1))
    deleted = np.zeros(len(vectors), np.bool_)
    deleted[order[:count]] = True
    return deleted


def known_of(shard, deleted):
    searcher = shard._searcher
    live_rows = getattr(searcher, "live_rows", None) or searcher.answering._live_rows
    return live_rows.masks.of(deleted.view(np.uint8))


def until(condition):
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("count", [300, 1_200, 2_900])
def test_answers_are_live_and_recall_grows_with_the_width(shard, words, count, place):
    vectors, queries = words[:ROWS], words[ROWS:]
    deleted = marked(vectors, count, place)
    truth = nearest(vectors, queries, K, "l2", deleted)[1]
    before = shard.search(queries, K, width=60, deleted=deleted)
    shard.expect(deleted)
    assert known_of(shard, deleted).made is not None
    recalls = []
    for width in WIDTHS:
        answers = shard.search(queries, K, width=width, deleted=deleted)
        assert_answers_are_sound(answers, vectors, queries, K, "l2", deleted)
        recalls.append(recall(answers[1], truth))
    assert (np.diff(recalls) > -0.002).all(), recalls
    assert recalls[2] > recall(before[1], truth) - 0.03
    assert recalls[-1] > 0.98, recalls


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("algorithm", ["vamana", "hnsw", "ivf_pq"])
def test_every_metric_is_answered_rightly(words, tmp_path, metric, algorithm):
    vectors, queries = words[:3000].copy(), words[ROWS : ROWS + 20]
    vectors[7] = 0
    shard = opened(algorithm, vectors, tmp_path, metric=metric)
    deleted = marked(vectors, 500, "in one cluster")
    shard.expect(deleted)
    answers = shard.search(queries, K, width=200, deleted=deleted)
    assert_answers_are_sound(answers, vectors, queries, K, metric, deleted)
    truth = nearest(vectors, queries, K, metric, deleted)[1]
    assert recall(answers[1], truth) > 0.95


def test_equal_rows_of_which_most_are_deleted_are_all_found(tmp_path, words):
    vectors = words[:3000].copy()
    vectors[:600] = vectors[0]
    deleted = np.arange(3000) < 580
    for algorithm in ("vamana", "hnsw"):
        folder = tmp_path / algorithm
        folder.mkdir()
        shard = opened(algorithm, vectors, folder)
        shard.expect(deleted)
        found = shard.search(vectors[:1], 20, width=64, deleted=deleted)[0]
        assert sorted(found[0].tolist()) == list(range(580, 600))


def test_live_rows_lead_to_live_rows_and_all_of_them_can_be_reached(words):
    generator = np.random.default_rng(1)
    vectors = np.ascontiguousarray(np.pad(words[:2000], ((0, 0), (0, 12))))
    vectors.flags.writeable = False
    apart = ((vectors[:, None, :8] - vectors[None, :, :8]) ** 2).sum(axis=2)
    neighbours = np.argsort(apart, axis=1)[:, 1:9].astype(np.uint32)
    neighbours[:, 7] = generator.permutation(2000)  # so that all can be reached
    graph = Adjacency(neighbours, np.full(2000, 8, np.uint16), 5)
    deleted = marked(vectors, 600, "in one cluster").view(np.uint8)
    stored = neighbours.copy()
    chosen = choose(Space(vectors.reshape(-1), 112), graph, deleted, Effort(8, 4, 2, 1.2))
    np.testing.assert_array_equal(graph.neighbours, stored)
    used = np.arange(8) < chosen.degrees[:, None]
    to_deleted = (deleted[chosen.neighbours] != 0) & used
    assert not to_deleted[deleted == 0].any()
    seen, waiting = {5}, [5]
    while waiting:
        node = waiting.pop()
        for row in chosen.neighbours[node, : chosen.degrees[node]].tolist():
            if row not in seen:
                seen.add(row)
                waiting.append(row)
    assert set(np.flatnonzero(deleted == 0).tolist()) <= seen


def test_graphs_that_are_asked_together_are_searched_past_them_too(words, tmp_path):
    shards, masks = [], []
    for place, folder in enumerate(("one", "other")):
        rows = words[place * 3000 : (place + 1) * 3000]
        shards.append(opened("vamana", rows, tmp_path / folder, beam="edges"))
        masks.append(marked(rows, 500, "in one cluster"))
    searchers = [shard.packed_searcher for shard in shards]
    several = Several(searchers, [mask.view(np.uint8) for mask in masks])
    queries, widths = words[ROWS : ROWS + 4], np.full((2, 4), 40, np.int64)
    ask_together(several, "l2", queries, K, widths)
    assert [known_of(shard, mask).queries for shard, mask in zip(shards, masks, strict=True)] == [
        4,
        4,
    ]
    shards[1].expect(masks[1])
    found = ask_together(several, "l2", queries, K, widths)
    for place, shard in enumerate(shards):
        alone = shard.search(queries, K, width=40, deleted=masks[place])
        np.testing.assert_array_equal(found[0][place], alone[0])
        np.testing.assert_array_equal(found[1][place], alone[1])
    assert several._masked == [0]


def test_it_is_made_in_the_background_once_enough_queries_came(
    hnsw, words, small_shards_count, monkeypatch
):
    deleted = marked(words[:ROWS], 200, "in one cluster")
    queries = words[ROWS:]
    for _ in range(7):
        hnsw.search(queries, K, width=30, deleted=deleted)
    known = known_of(hnsw, deleted)
    assert known.queries == 700
    assert not known.is_decided
    hnsw.search(queries, K, width=30, deleted=deleted)
    until(lambda: known.made is not None)
    again = hnsw.search(queries, K, width=30, deleted=deleted)
    assert_answers_are_sound(again, words[:ROWS], queries, K, "l2", deleted)


def test_small_shards_and_masks_of_few_rows_or_most_get_nothing(hnsw, words, monkeypatch):
    queries = np.repeat(words[ROWS:], 20, axis=0)
    small = marked(words[:ROWS], 200, "anywhere")
    hnsw.search(queries, K, width=30, deleted=small)
    assert known_of(hnsw, small).is_decided
    assert known_of(hnsw, small).made is None
    monkeypatch.setattr(lasting_masks, "LEAST_ROWS", 0)
    few = marked(words[:ROWS], 1, "anywhere")
    many = marked(words[:ROWS], 4_000, "anywhere")
    hnsw.search(queries, K, width=30, deleted=few)
    hnsw.expect(many)
    for mask in (few, many):
        assert known_of(hnsw, mask).made is None


def test_it_is_gone_with_its_mask_and_bounded_while_masks_stay(hnsw, words):
    masks = [marked(words[:ROWS], 200 + count, "anywhere") for count in range(6)]
    for mask in masks:
        hnsw.expect(mask)
    known = hnsw._searcher.answering._live_rows.masks
    made = [one for one in known.all if one.made is not None]
    assert len(made) == lasting_masks.MOST
    del masks, mask
    gc.collect()
    assert not known.all


def test_a_disk_without_room_leaves_searches_as_they_are(
    words, tmp_path, small_shards_count, monkeypatch, caplog
):
    shard = opened("vamana", words[:ROWS], tmp_path, beam="edges")
    deleted = marked(words[:ROWS], 200, "in one cluster")
    full = layout.shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(layout.shutil, "disk_usage", lambda _: full)
    queries = np.repeat(words[ROWS:], 9, axis=0)
    shard.search(queries, K, width=30, deleted=deleted)
    until(lambda: not lasting_masks._one_at_a_time.locked())
    answers = shard.search(words[ROWS:], K, width=30, deleted=deleted)
    assert known_of(shard, deleted).made is None
    assert_answers_are_sound(answers, words[:ROWS], words[ROWS:], K, "l2", deleted)


def test_nothing_stays_in_the_folder(words, tmp_path):
    shard = opened("vamana", words[:ROWS], tmp_path, beam="edges")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    shard.expect(marked(words[:ROWS], 500, "anywhere"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_rows_that_are_all_compared_need_nothing(words, tmp_path):
    shard = opened("exact", words[:500], tmp_path)
    deleted = marked(words[:500], 50, "anywhere")
    shard.expect(deleted)
    answers = shard.search(words[ROWS:], K, width=30, deleted=deleted)
    assert_answers_are_sound(answers, words[:500], words[ROWS:], K, "l2", deleted)
