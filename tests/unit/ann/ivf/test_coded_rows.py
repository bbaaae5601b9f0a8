"""Wide rows by a byte a number: what is written, and that it changes no answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.ivf import kernels_coded as kernels
from puffin_ann.ann.ivf import lists as inverted
from puffin_ann.ann.ivf.coded_rows import code_rows, stride_of
from puffin_ann.ann.ivf.search import Searcher, inverse_norms
from puffin_ann.ann.simd.kernels_byte_rows import MIDDLE

K = 10
DIMENSIONS = [256, 261, 300, 384]


def normal(rows, dimension, seed=0):
    found = np.random.default_rng(seed).standard_normal((rows, dimension))
    return (found + 0.3).astype(np.float32)


def coded(metric, vectors, origin=None):
    origin = np.zeros(vectors.shape[1], np.float32) if origin is None else origin
    norms = inverse_norms(vectors) if metric == "cosine" else None
    return np.concatenate(list(code_rows(metric, vectors, origin, norms)))


def parts_of(rows, dimension):
    """Codes, steps, and what is added to scores."""
    wide = -(-dimension // 16) * 16
    tails = np.ascontiguousarray(rows[:, wide : wide + 8]).view(np.float32)
    return rows[:, :wide], tails[:, 0], tails[:, 1]


@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_a_row_is_its_codes_times_its_step(metric, dimension):
    vectors = normal(50, dimension) * np.float32(7)
    vectors[3] = 0
    origin = normal(1, dimension, 1)[0] if metric == "l2" else np.zeros(dimension, np.float32)
    rows = coded(metric, vectors, origin)
    assert rows.shape == (50, stride_of(dimension))
    assert rows.shape[1] % 64 == 0
    codes, steps, added = parts_of(rows, dimension)
    space = vectors - origin
    if metric == "cosine":
        space /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    decoded = (codes.astype(float) - MIDDLE) * steps[:, None]
    assert (codes[:, dimension:] == MIDDLE).all()
    assert (np.abs(decoded[:, :dimension] - space) <= 0.501 * steps[:, None]).all()
    lacking = ((decoded[:, :dimension] - space) ** 2).sum(axis=1)
    if metric == "ip":
        assert not added.any()
    else:
        usual = np.arange(50) != 3 if metric == "cosine" else slice(None)
        np.testing.assert_allclose(added[usual], -lacking[usual], rtol=1e-2, atol=1e-9)
    if metric == "cosine":
        assert added[3] == 1


@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_the_rows_left_hold_the_nearest_and_few_others(metric, dimension):
    vectors, queries = normal(400, dimension), normal(20, dimension, 2)
    rows = coded(metric, vectors).reshape(-1)
    for query in queries:
        asked = np.zeros(-(-dimension // 16) * 16, np.float32)
        asked[:dimension] = query if metric == "l2" else query / np.linalg.norm(query)
        found = np.random.default_rng(0).permutation(400).astype(np.uint64)
        code = METRICS[metric].code
        likely = kernels.refine_by_bytes(code, rows, asked, found, 400, K)
        distances = METRICS[metric].distances(query[None], vectors)[0]
        nearest = np.argsort(distances, kind="stable")[:K]
        left = (found[:likely] & np.uint64(0xFFFFFFFF)).astype(int)
        assert set(nearest) <= set(left.tolist())
        assert K <= likely <= 3 * K
        assert sorted((found & np.uint64(0xFFFFFFFF)).tolist()) == list(range(400))


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("spread", [1e-1, 1e-2, 1e-3, 1e-4])
def test_near_copies_are_left_as_far_as_their_order_is_not_known(metric, spread):
    """Rows nearer to each other than codes tell: the nearest must not be lost among them."""
    middle = normal(1, 384, 5)
    vectors, queries = (middle + spread * normal(rows, 384, rows) for rows in (300, 20))
    rows = coded(metric, vectors).reshape(-1)
    kept = 0
    for query in queries:
        asked = query if metric == "l2" else query / np.linalg.norm(query)
        found = np.random.default_rng(0).permutation(300).astype(np.uint64)
        code = METRICS[metric].code
        likely = kernels.refine_by_bytes(code, rows, asked, found, 300, K)
        space, place = (of.astype(float) for of in (vectors, query))
        if metric == "cosine":
            space, place = space / np.linalg.norm(space, axis=1)[:, None], asked.astype(float)
        nearest = np.argsort(((space - place) ** 2).sum(axis=1), kind="stable")[:K]
        left = (found[:likely] & np.uint64(0xFFFFFFFF)).astype(int)
        kept += len(set(nearest.tolist()) & set(left.tolist()))
    assert kept >= 0.99 * K * len(queries)


def test_rows_beyond_numbers_are_left_for_their_vectors():
    """An infinite step says nothing of a row: then no candidate is left out."""
    vectors = normal(100, 256)
    vectors[5] = 3e38
    rows = coded("l2", vectors).reshape(-1)
    asked = vectors[0].copy()
    found = np.arange(100, dtype=np.uint64)
    assert kernels.refine_by_bytes(METRICS["l2"].code, rows, asked, found, 100, K) == 100
    found = np.arange(5, dtype=np.uint64)
    assert kernels.refine_by_bytes(METRICS["l2"].code, rows, asked, found, 5, K) == 5


@settings(max_examples=25, deadline=None)
@given(
    metric=st.sampled_from(sorted(METRICS)),
    kind=st.sampled_from(["even", "equal", "zeros", "spikes", "long", "whole"]),
    seed=st.integers(0, 2**16),
    refined=st.integers(1, 200),
)
def test_answers_are_those_of_the_stored_vectors(metric, kind, seed, refined):
    """Every candidate compared by its vector: with coded rows the same distances are answered."""
    generator = np.random.default_rng(seed)
    vectors, queries = normal(600, 256, seed), normal(8, 256, seed + 1)
    if kind == "equal":
        vectors[::2] = vectors[0]
    elif kind == "zeros":
        vectors[::3] = 0
        queries[0] = 0
    elif kind == "spikes":
        vectors[generator.integers(0, 600, 60), generator.integers(0, 256, 60)] = 1000
    elif kind == "long":
        vectors *= generator.uniform(0.01, 100, (600, 1)).astype(np.float32)
        queries *= np.float32(1000)
    elif kind == "whole":
        vectors, queries = np.sign(vectors), np.sign(queries)
    trained = inverted.train(vectors, metric, lists=6, subspaces=64, seed=1, threads=1)
    assert trained is not None
    lists = inverted.fill(trained, vectors, 1)
    norms = inverse_norms(vectors) if metric == "cosine" else None
    rows = np.concatenate(list(code_rows(metric, vectors, trained.origin, norms)))
    by_bytes = Searcher(trained, lists, vectors, norms, coded=rows)
    by_vectors = Searcher(trained, lists, vectors, norms)
    how = {"probes": 3, "refined": refined}
    expected = by_vectors.search(queries, K, **how)
    found = by_bytes.search(queries, K, **how)
    np.testing.assert_array_equal(found[1], expected[1])


def test_to_refine_every_row_is_brute_force():
    vectors, queries = normal(500, 256), normal(9, 256, 3)
    trained = inverted.train(vectors, "l2", lists=4, subspaces=64, seed=1, threads=1)
    assert trained is not None
    lists = inverted.fill(trained, vectors, 1)
    wrong = np.zeros((500, stride_of(256)), np.uint8)
    searcher = Searcher(trained, lists, vectors, coded=wrong)
    found = searcher.search(queries, K, probes=4, refined=500)
    expected = np.sort(METRICS["l2"].distances(queries, vectors), axis=1)[:, :K]
    np.testing.assert_array_equal(found[1], expected)
