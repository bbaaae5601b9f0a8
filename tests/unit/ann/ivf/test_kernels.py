"""The search of inverted lists against a reference in NumPy that follows docs/format.md."""

import io
from itertools import pairwise, product

import numpy as np
import pytest

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.ivf.lists import Lists, Trained
from puffin_ann.ann.ivf.reach import measure_reach
from puffin_ann.ann.ivf.search import Searcher, inverse_norms, tile_centroids
from puffin_ann.blobs.shards import ivf as blob
from puffin_ann.engines import engine

ROWS, WIDTH, LISTS, K = 3000, 20, 24, 10
SEARCHES = [("l2", 1, 40), ("l2", 6, 15), ("cosine", 3, 30), ("ip", 1, 12), ("ip", 5, 200)]


KINDS = ["even", "clustered"]
"""Clusters far from each other have scores relative to each centroid: flag 0 of the document."""


def normal(n, seed=0, kind="even"):
    generator = np.random.default_rng(seed)
    found = generator.standard_normal((n, WIDTH))
    if kind == "clustered":
        centres = 20 * np.random.default_rng(99).standard_normal((LISTS // 3, WIDTH))
        found += centres[generator.integers(0, len(centres), n)]
    return found.astype(np.float32)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """By metric and kind: a shard opened for search, and its arrays as the blob has them."""
    made, found = engine("ivf_pq"), {}
    for metric, kind in product(METRICS, KINDS):
        folder = tmp_path_factory.mktemp(metric)
        built = made.build(
            normal(ROWS, kind=kind), metric=metric, parameters=made.check({"lists": LISTS}, WIDTH),
            norm_bound=0.0, seed=1, threads=1, scratch=folder,
        )  # fmt: skip
        out = io.BytesIO()
        made.encode(built, out)
        made.unpack(io.BytesIO(out.getvalue()), folder)
        found[metric, kind] = made.open(folder), blob.open(folder)
        assert found[metric, kind][1].relative == (kind == "clustered")
    return found


def words_of(lists):
    """p, the codewords that each place's codes name, `(n, d)`."""
    codes = np.stack([lists.codes & 15, lists.codes >> 4], axis=2).reshape(ROWS, -1)
    found = np.zeros((ROWS, WIDTH))
    for j, (first, last) in enumerate(pairwise(lists.subspace_offsets.tolist())):
        found[:, first:last] = lists.codebook[j, codes[:, j], : last - first]
    return found


def step_of(query, lists):
    """The most that products of one sub-space span, in 255 steps."""
    spans = []
    for j, (first, last) in enumerate(pairwise(lists.subspace_offsets.tolist())):
        products = 2 * lists.codebook[j, :, : last - first] @ query[first:last]
        spans.append(np.ptp(products))
    return max(spans) / 255


def scored(lists, query):
    """Lists from the nearest on, and each place's score with how far tables of bytes may err."""
    moved = query - lists.origin if lists.metric == "l2" else query / np.linalg.norm(query)
    moved = moved.astype(np.float64)
    centroids = lists.centroids.astype(np.float64)
    plain = centroids[:, :WIDTH]
    products, squares = plain @ moved, (centroids**2).sum(axis=1)
    of = np.repeat(np.arange(LISTS), np.diff(lists.starts))
    words, subspaces = words_of(lists), len(lists.codebook)
    if lists.relative:
        apart = squares - 2 * products + moved @ moved
        near = np.einsum("nd,nd->n", words, moved - plain[of])
        error = np.array([step_of(moved - centroid, lists) for centroid in plain])[of]
    else:
        apart, near = squares - 2 * products, words @ moved
        error = np.full(ROWS, step_of(moved, lists))
    scores = apart[of] - 2 * near + lists.biases
    order = np.argsort(squares - 2 * products, kind="stable")
    return order, scores, 0.51 * subspaces * error + 1e-4


def trained_as(lists):
    return Trained(
        lists.metric, lists.relative, lists.scale, lists.origin, lists.centroids,
        lists.subspace_offsets, lists.codebook,
    )  # fmt: skip


def searcher_of(shard, lists, **how):
    """A searcher that looks through as many lists for each query, unless told how."""
    filled = Lists(lists.starts, lists.ordinals, lists.codes, lists.biases)
    vectors = shard.vectors(np.arange(shard.rows))
    norms = inverse_norms(vectors) if lists.metric == "cosine" else None
    return Searcher(trained_as(lists), filled, vectors, norms, **how)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("metric", "probes", "refined"), SEARCHES)
def test_a_search_refines_the_best_scores_of_the_nearest_lists(
    metric, probes, refined, kind, shards
):
    shard, lists = shards[metric, kind]
    queries = normal(40, 7, kind)
    searcher = searcher_of(shard, lists)
    ids, distances = searcher.search(queries, K, probes=probes, refined=refined)
    assert len(lists.codebook) > 1
    for number, query in enumerate(queries):
        order, scores, error = scored(lists, query)
        sizes = np.cumsum(np.diff(lists.starts)[order])
        looked = max(probes, int(np.searchsorted(sizes, refined)) + 1)
        places = np.concatenate(
            [
                np.arange(*lists.starts[list_number : list_number + 2])
                for list_number in order[:looked].tolist()
            ]
        )
        last = np.sort(scores[places])[min(refined, len(places)) - 1]
        exact = METRICS[metric].distances(query[None], shard.vectors(np.arange(ROWS)))[0]
        place_of = np.argsort(lists.ordinals)
        answered = place_of[ids[number]]
        assert np.isin(answered, places).all(), "rows of other lists were not looked at"
        assert (scores[answered] - error[answered] <= last + error.max()).all()
        surely = places[scores[places] + error[places] < last - error.max()]
        best = np.sort(exact[lists.ordinals[surely]])[:K]
        assert (distances[number, : len(best)] <= best).all()
        np.testing.assert_array_equal(distances[number], exact[ids[number]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", sorted(METRICS))
def test_lists_are_probed_from_the_nearest_on(metric, kind, shards):
    """With every candidate refined, the answers are the nearest rows of the lists looked at."""
    shard, lists = shards[metric, kind]
    queries = normal(30, 8, kind)
    searcher = searcher_of(shard, lists)
    for number, query in enumerate(queries):
        order, *_ = scored(lists, query)
        sizes = np.diff(lists.starts)[order]
        for probes in (1, 4):
            rows = np.concatenate(
                [
                    lists.ordinals[slice(*lists.starts[list_number : list_number + 2])]
                    for list_number in order[:probes].tolist()
                ]
            )
            found = searcher.search(
                queries[number : number + 1], K, probes=probes, refined=int(sizes[:probes].sum())
            )
            exact = METRICS[metric].distances(query[None], shard.vectors(np.sort(rows)))[0]
            np.testing.assert_array_equal(found[1][0], np.sort(exact)[:K])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", sorted(METRICS))
def test_lists_are_probed_as_far_as_the_reach_says(metric, kind, shards):
    """From a quarter as many as asked for to twice as many, by √rank · (d / d₁ − 1)."""
    shard, lists = shards[metric, kind]
    reach = measure_reach(trained_as(lists), shard.vectors(np.arange(ROWS)))
    assert reach.shape == (LISTS,)
    assert (np.diff(reach) >= 0).all()
    searcher = searcher_of(shard, lists, reach=reach)
    counts = set()
    for query in normal(60, 8, kind):
        moved = query - lists.origin if metric == "l2" else query / np.linalg.norm(query)
        padded = np.zeros(lists.centroids.shape[1])
        padded[:WIDTH] = moved
        apart = ((lists.centroids - padded) ** 2).sum(axis=1)
        order = np.argsort(apart, kind="stable")
        measure = np.sqrt(np.arange(1, LISTS + 1)) * (apart[order] / apart[order[0]] - 1)
        for probes in (4, 8):
            border = reach[probes - 1]
            if np.abs(measure / border - 1).min() < 1e-4:
                continue  # rounding decides
            count = probes // 4
            while count < 2 * probes and measure[count] <= border:
                count += 1
            counts.add((probes, count))
            rows = np.concatenate(
                [lists.ordinals[slice(*lists.starts[one : one + 2])] for one in order[:count]]
            )
            found = searcher.search(query[None], K, probes=probes, refined=len(rows))
            exact = METRICS[metric].distances(query[None], shard.vectors(np.sort(rows)))[0]
            np.testing.assert_array_equal(found[1][0], np.sort(exact)[:K])
    assert len({count for _, count in counts}) > 4, "every query had as many lists"


def test_few_that_may_be_answered_are_looked_for_in_as_many_lists(shards):
    shard, lists = shards["l2", "even"]
    searcher = searcher_of(shard, lists, reach=np.zeros(LISTS, np.float32))
    reachless = searcher_of(shard, lists)
    queries = normal(30, 8)
    few = np.ones(ROWS, np.uint8)
    few[::3] = 0
    how = {"probes": 8, "refined": 40, "excluded": few}
    np.testing.assert_array_equal(
        searcher.search(queries, K, **how)[1], reachless.search(queries, K, **how)[1]
    )
    all_of_them = {"probes": LISTS, "refined": 40}
    np.testing.assert_array_equal(
        searcher.search(queries, K, **all_of_them)[1],
        reachless.search(queries, K, **all_of_them)[1],
    )


@pytest.mark.parametrize("lists", [1, 63, 64, 65, 130])
def test_centroids_lie_side_by_side_in_tiles(lists):
    centroids = np.random.default_rng(0).standard_normal((lists, 7)).astype(np.float32)
    tiles = tile_centroids(centroids, 6)
    assert tiles.shape == (-(-lists // 64), 7, 64)
    for number in range(lists):
        column = tiles[number // 64, :, number % 64]
        np.testing.assert_array_equal(column[:6], centroids[number, :6])
        assert column[6] == pytest.approx((centroids[number].astype(float) ** 2).sum())
    assert np.isinf(tiles[-1, 6, (lists - 1) % 64 + 1 :]).all()
