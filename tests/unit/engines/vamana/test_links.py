"""Links of graphs that are predicted by what a graph over some of the rows has."""

import io

import numpy as np
import pytest

from puffin_ann.ann.clustering import kmeans
from puffin_ann.engines import engine, links
from puffin_ann.engines.links import MeasuredLinks
from puffin_ann.engines.sizes import predict
from tests.support.indexes.sized import shape_of

ROWS, DIMENSION = 24_000, 32


def clustered(clusters: int, spread: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(clusters, DIMENSION))
    noise = spread * rng.standard_normal((ROWS, DIMENSION))
    return (centres[rng.integers(0, clusters, ROWS)] + noise).astype(np.float32)


def written(vectors: np.ndarray, folder) -> int:
    """Bytes of a shard whose rows are in the order of its cells, as a build has them."""
    cells = kmeans.assign(vectors, kmeans.train(vectors[:4096], 32, seed=2, threads=2), 2)[0]
    made = engine("vamana")
    graph = made.build(
        np.ascontiguousarray(vectors[np.argsort(cells, kind="stable")]),
        metric="l2",
        parameters=made.check({}, DIMENSION),
        norm_bound=0.0,
        seed=3,
        threads=2,
        scratch=folder,
    )
    return made.encode(graph, io.BytesIO())


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_a_shard_is_predicted_by_half_of_its_rows_however_they_lie(spread, tmp_path):
    vectors = clustered(240, spread)
    length = written(vectors, tmp_path)
    found = links.measured(vectors[: ROWS // 2], "l2", None, threads=2)
    shape = shape_of(ROWS, DIMENSION, metric="l2", shards=1)
    measured = predict(shape_of(ROWS, DIMENSION, metric="l2", shards=1, links=found))
    by_rule = predict(shape)
    print(
        f"{spread}: {found}, {measured.shard / length - 1:+.2%}, {by_rule.shard / length - 1:+.2%}"
    )
    assert abs(measured.shard - length) < 0.05 * length
    assert measured.file_least == measured.file == measured.file_most
    beside = by_rule.file - by_rule.shard
    assert by_rule.file_least - beside <= length <= by_rule.file_most - beside
    if spread < 1:  # as of words and sentences, rows would have twice as many links
        assert by_rule.shard > 1.1 * length


def test_links_grow_with_the_table_and_are_told_by_the_shard():
    found = MeasuredLinks(rows=32_000, degree=20.0, growth=2.0, link=1.3)
    assert found.of_row(32_000, 32_000, 64) == pytest.approx(26.0)
    # In four shards they are as many as in one, of fewer rows to tell one among.
    few, many = (found.of_row(1_024_000, rows, 64) for rows in (256_000, 1_024_000))
    assert many == pytest.approx(30 * (1.3 + (np.log2(1_024_000 / 30) - np.log2(1600)) / 7))
    assert many - few == pytest.approx(30 * 2 / 7)
    assert found.of_row(10**12, 10**9, 32) < 32 * 5
    assert found.of_row(10, 2, 64) > 0


def test_links_that_become_fewer_do_so_down_to_those_of_tight_clusters():
    found = MeasuredLinks(rows=128_000, degree=49.0, growth=-1.8, link=1.6)
    steady = MeasuredLinks(rows=128_000, degree=49.0, growth=0.0, link=1.6)
    rows = 1_024_000
    assert found.of_row(rows, rows, 64) < 0.95 * steady.of_row(rows, rows, 64)
    fewest = links.by_rule(10**12, links.FEWEST)
    assert found.of_row(1 << 60, 10**12, 64) == pytest.approx(fewest, rel=0.1)


def test_wide_rows_are_measured_by_fewer():
    assert links.rows_to_measure(100) == links.MEASURED_ROWS
    assert 4 * 1536 * links.rows_to_measure(1536) <= links.MEASURED_BYTES


@pytest.mark.parametrize("algorithm", ["hnsw", "ivf_pq", "exact", "centroid"])
def test_only_the_graph_of_vamana_has_a_range(algorithm):
    size = predict(shape_of(10**6, 100, algorithm))
    assert size.file_least == size.file == size.file_most


@pytest.mark.parametrize("rows", [0, 1, 2, 1000, 10**6, 10**12])
@pytest.mark.parametrize("dimension", [1, 32, 768])
def test_what_is_predicted_lies_in_its_range(rows, dimension):
    size = predict(shape_of(rows, dimension))
    assert 0 < size.file_least <= size.file <= size.file_most
