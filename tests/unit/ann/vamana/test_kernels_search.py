"""Searches by full vectors and by codes against references in Python; whole numbers are exact."""

import numpy as np
import pytest

from puffin_ann.ann.clustering import product_quantisation
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.graph.arguments import FlatAdjacency, QueryBatch
from puffin_ann.ann.vamana import kernels_search
from tests.support.indexes.graph_reference import (
    WIDTH,
    best_first,
    space_of,
    squared,
    whole_numbers,
)

ROWS, MOST, ENTRY, K = 200, 8, 3, 5
L2 = METRICS["l2"].code


def some_graph(seed):
    generator = np.random.default_rng(seed)
    lists = [
        generator.choice(ROWS, size, replace=False).tolist()
        for size in generator.integers(2, MOST + 1, ROWS)
    ]
    neighbours = np.zeros((ROWS, MOST), np.uint32)
    for row, line in enumerate(lists):
        neighbours[row, : len(line)] = line
    return lists, neighbours.reshape(-1), np.array([len(line) for line in lists], np.uint16)


def searched(kernel, *first, space, neighbours, degrees, queries, widths, deleted):
    batch = QueryBatch(
        metric=L2,
        vectors=space,
        queries=queries,
        widths=np.array(widths, np.int64),
        live=ROWS - np.count_nonzero(deleted),
        spare=8,
        deleted=deleted,
        stamps=np.zeros(ROWS, np.uint8),
        ids=np.zeros((len(queries), K), np.int64),
        distances=np.zeros((len(queries), K), np.float32),
        counts=np.zeros(len(queries), np.int64),
    )
    graph = FlatAdjacency(neighbours, MOST, degrees, ENTRY)
    kernel(*first, tuple(space_of(space)), tuple(graph), queries.reshape(-1), tuple(batch), 250)
    return batch.ids, batch.distances, batch.counts


def answers(space, query, pool):
    """The K nearest rows of a pool."""
    return sorted((np.sqrt(squared(space[row], query)), row) for _, row in pool)[:K]


def assert_same(found, expected):
    for ids, distances, count, line in zip(*found, expected, strict=True):
        assert count == len(line)
        assert ids.tolist() == [row for _, row in line] + [-1] * (K - count)
        np.testing.assert_allclose(distances[:count], [distance for distance, _ in line], rtol=1e-6)
        assert np.isinf(distances[count:]).all()


WIDTHS = [1, 3, 20, 64, 199, 10**6, 7, 40]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.0, 0.4, 0.95])
def test_a_search_by_full_vectors_answers_what_its_reference_does(seed, share):
    space, queries = whole_numbers(ROWS, seed), whole_numbers(len(WIDTHS), seed + 50)
    lists, neighbours, degrees = some_graph(seed)
    deleted = (np.random.default_rng(seed).random(ROWS) < share).astype(np.uint8) if share else b""
    deleted = np.frombuffer(bytes(deleted), np.uint8)
    live = ROWS - np.count_nonzero(deleted)
    found = searched(
        kernels_search.search_full, space=space, neighbours=neighbours, degrees=degrees,
        queries=queries, widths=WIDTHS, deleted=deleted,
    )  # fmt: skip
    expected = []
    for query, width in zip(queries, WIDTHS, strict=True):
        keep = min(max(width, K), live)
        most = max(1, min(keep, ROWS - live))
        pool, _ = best_first(space, lists, ENTRY, query, keep, deleted, most)
        # What deleted rows cut off from too many live ones answers nothing; then all are compared.
        # The first K + 8 rows of the pool are measured; with exact sums their order stays.
        expected.append(answers(space, query, pool if len(pool) == keep or not share else []))
    assert_same(found, expected)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("by_product", [False, True])
@pytest.mark.parametrize("subspaces", [1, 4, 5])
def test_a_search_by_codes_answers_what_its_reference_does(seed, by_product, subspaces):
    generator = np.random.default_rng(seed)
    space, queries = whole_numbers(ROWS, seed), whole_numbers(len(WIDTHS), seed + 50)
    lists, neighbours, degrees = some_graph(seed)
    offsets = product_quantisation.subspace_offsets(WIDTH, subspaces)
    widest = int(np.diff(offsets.astype(np.int64)).max())
    codebook = generator.integers(-5, 6, (subspaces, 16, widest)).astype(np.float32)
    codes = generator.integers(0, 16, (ROWS, subspaces)).astype(np.uint8)
    found = searched(
        kernels_search.search_codes,
        (product_quantisation.transpose_codebook(codebook), offsets, codes.reshape(-1), by_product),
        space=space, neighbours=neighbours, degrees=degrees, queries=queries, widths=WIDTHS,
        deleted=np.empty(0, np.uint8),
    )  # fmt: skip
    expected = []
    for query, width in zip(queries, WIDTHS, strict=True):
        tables = []
        for j in range(subspaces):
            part = query[offsets[j] : offsets[j + 1]]
            words = codebook[j, :, : len(part)]
            tables.append(-(words @ part) if by_product else ((words - part) ** 2).sum(axis=1))
        estimates = np.sum([table[codes[:, j]] for j, table in enumerate(tables)], axis=0)
        if by_product:  # candidates sort by bits: an estimate is taken from the least there can be
            estimates = estimates - sum(table.min() for table in tables)
        pool = by_estimate(estimates, lists, min(max(width, K), ROWS))
        expected.append(answers(space, query, pool))
    assert_same(found, expected)


def by_estimate(estimates, lists, keep):
    pool, seen, expanded = [(float(estimates[ENTRY]), ENTRY)], {ENTRY}, set()
    while True:
        following = next((row for _, row in pool if row not in expanded), None)
        if following is None:
            return pool
        expanded.add(following)
        new = [row for row in lists[following] if row not in seen]
        seen.update(new)
        pool = sorted(pool + [(float(estimates[row]), row) for row in new])[:keep]
