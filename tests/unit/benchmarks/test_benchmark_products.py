"""Inner products: what is true, and what peers are asked."""

import numpy as np

from benchmarks import engines
from benchmarks.data import NEIGHBOURS, DataSet
from benchmarks.products import METRIC, augmented, by_product
from benchmarks.race import Contender


def data() -> DataSet:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((400, 8), dtype=np.float32)
    vectors *= rng.uniform(1, 5, size=(400, 1)).astype(np.float32)
    queries = rng.standard_normal((5, 8), dtype=np.float32)
    return DataSet("glove-20k", vectors, queries, np.zeros((5, NEIGHBOURS), np.int64))


def test_true_are_the_rows_of_the_largest_products():
    found = by_product(data())
    products = found.queries @ found.vectors.T
    assert np.array_equal(found.truth, np.argsort(-products, axis=1)[:, :NEIGHBOURS])


def test_augmented_rows_are_ordered_by_their_products_for_queries_as_they_are():
    of = by_product(data())
    longest = float(np.linalg.norm(of.vectors, axis=1).max())
    rows = METRIC.to_search_space(of.vectors, longest)

    def search(queries, effort):
        return ((queries[:, None, :] - rows) ** 2).sum(axis=2).argsort(axis=1)[:, :effort]

    peer = augmented(Contender("a peer", search))
    assert of.recall(peer.search(of.queries, NEIGHBOURS)) == 1.0


def test_answers_by_inner_product_are_held_to_it(tmp_path):
    of = by_product(data())
    built = engines.build_ours("vamana", of.vectors, tmp_path, metric="ip")[1]
    shard, _ = engines.through_blob("vamana", built, tmp_path)
    assert shard.metric == "ip"
    engines.check_answers(shard, of)
