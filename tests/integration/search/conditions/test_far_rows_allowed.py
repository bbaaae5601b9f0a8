"""Where rows that may be answered lie apart from those near a query, they are found all the same.

A walk towards the query seldom comes by them: so what it finds is not taken for the nearest.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from puffin_ann import open_index
from puffin_ann.ann.exact import brute_force
from puffin_ann.search.conditions.ways import Way
from tests.support.lifecycle import builds
from tests.support.params import long_but_first
from tests.support.paths import SAMPLE

ROWS, QUERIES, K, TARGET = 30_000, 60, 10, 0.95


@pytest.fixture
def built(catalog):
    """Build an index of mixed rows; returns it, their places along an axis, and queries behind it.

    The rows are mixed of two words each: as many as it takes for shards to be left out.
    """
    words = pq.read_table(SAMPLE, columns=["embedding"])["embedding"]
    real = np.stack(words.to_numpy(zero_copy_only=False)).astype(np.float32)
    rng = np.random.default_rng(0)
    one, other = real[rng.integers(len(real), size=(2, ROWS + 2000))]
    share = rng.uniform(0.6, 1.0, (len(one), 1))
    noise = 0.1 * rng.standard_normal(one.shape) * real.std(axis=0)
    mixed = (share * one + (1 - share) * other + noise).astype(np.float32)
    vectors, others = mixed[:ROWS], mixed[ROWS:]
    axis = np.linalg.eigh(np.cov(vectors.T))[1][:, -1]
    place = np.argsort(np.argsort(vectors @ axis))
    queries = others[np.argsort(others @ axis)[-QUERIES:]]
    rows = pa.table(
        {
            "id": np.arange(ROWS),
            "embedding": pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), vectors.shape[1]),
            "place": place,
        }
    )
    table = catalog.create_table("demo.words", schema=rows.schema)
    table.append(rows)
    declared = builds.declaration(
        algorithm="vamana", shards=4, partitions_per_shard=32, gate={}, recall_target=TARGET
    )
    builds.build(declared, "run")
    return open_index(table.refresh(), builds.INDEX), vectors, place, queries


def test_answers_to_queries_far_from_what_is_allowed_are_no_fewer_of_the_nearest(built):
    index, vectors, place, queries = built
    index._shards.way = Way.SIFT  # as of a table so large that to compare its rows takes longer
    for share in (0.3, 0.5, 0.7):
        where, allowed = f"place < {round(share * ROWS)}", place < round(share * ROWS)
        _, nearest = brute_force.search(queries, vectors[allowed], K, "l2")
        answers = [index.search(query, K, where=where)["distance"].to_numpy() for query in queries]
        found = np.stack(answers) <= nearest[:, -1:] * np.float32(1 + 1e-5)
        assert found.mean() >= TARGET, where


@pytest.mark.parametrize("algorithm", ["vamana", "hnsw"])
@pytest.mark.parametrize("at_once", long_but_first([7, 1]))
def test_among_clusters_of_which_the_nearest_is_not_allowed_the_first_queries_find_the_next(
    catalog, algorithm, at_once
):
    """Walks with a mask end in any of the others: one query of two found no row that is near."""
    rng = np.random.default_rng(12)
    middles = 4 * rng.normal(size=(50, 96))
    cluster = rng.integers(50, size=20_000)
    vectors = (middles[cluster] + rng.normal(size=(20_000, 96))).astype(np.float32)
    far = np.argsort(np.argsort(((vectors - middles[0]) ** 2).sum(axis=1)))
    rows = pa.table(
        {
            "id": np.arange(len(vectors)),
            "embedding": pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), 96),
            "far": far,
        }
    )
    table = catalog.create_table("demo.words", schema=rows.schema)
    table.append(rows)
    declared = builds.declaration(algorithm=algorithm, shards=1, gate={}, recall_target=TARGET)
    builds.build(declared, "run")
    index = open_index(table.refresh(), builds.INDEX)
    queries = (middles[0] + rng.normal(size=(66, 96))).astype(np.float32)
    allowed = far >= len(far) * 3 // 10
    _, nearest = brute_force.search(queries, vectors[allowed], K, "l2")
    answers = [
        index.search(queries[at : at + at_once], K, where=f"far >= {len(far) * 3 // 10}")
        for at in range(0, len(queries), at_once)
    ]
    distances = np.concatenate([found["distance"].to_numpy() for found in answers])
    found = distances.reshape(-1, K) <= nearest[:, -1:] * np.float32(1 + 1e-5)
    assert found.mean() >= TARGET
