"""Promises of batches inserted into a shard that hold for any engine."""

import io

import numpy as np
import pytest

from puffin_ann.engines import engine
from puffin_ann.errors import BlobFormatError
from tests.support.indexes.shard_checks import (
    METRIC_NAMES,
    assert_answers_are_sound,
    nearest,
    recall,
)

ALGORITHMS = ["exact", "ivf_pq", "hnsw", "vamana"]


@pytest.fixture(params=ALGORITHMS)
def algorithm(request):
    return request.param


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


class Bench:
    """Builds shards and inserts into them, as blobs, in folders of its own."""

    def __init__(self, algorithm, metric, folder):
        self.made, self.metric, self.folder, self.count = engine(algorithm), metric, folder, 0

    def new(self):
        self.count += 1
        path = self.folder / str(self.count)
        path.mkdir()
        return path

    def given(self, vectors, threads):
        return {
            "parameters": self.made.check({}, vectors.shape[1]),
            "norm_bound": float(np.linalg.norm(vectors, axis=1).max(initial=0)),
            "seed": 0,
            "threads": threads,
            "scratch": self.new(),
        }

    def blob(self, built):
        out = io.BytesIO()
        self.made.encode(built, out)
        return out.getvalue()

    def built(self, vectors):
        made = self.made.build(vectors, metric=self.metric, **self.given(vectors, 2))
        return self.unpacked(self.blob(made), searched=False)

    def inserted(self, folder, added, deleted=None, threads=2):
        return self.blob(
            self.made.insert(folder, added, deleted=deleted, **self.given(added, threads))
        )

    def unpacked(self, blob, searched=True):
        folder = self.new()
        self.made.unpack(io.BytesIO(blob), folder, searched=searched)
        return folder

    def opened(self, blob):
        return self.made.open(self.unpacked(blob))


def sizes():
    """Return every pair of rows there are and rows added, and each of both with every metric."""
    for first, rows in enumerate([0, 1, 3, 300]):
        for second, added in enumerate([0, 1, 5, 400]):
            yield METRIC_NAMES[(first + second) % len(METRIC_NAMES)], rows, added


@pytest.mark.parametrize(("metric", "rows", "added"), sizes())
def test_shards_of_any_size_take_batches_of_any_size(algorithm, metric, rows, added, tmp_path):
    vectors, queries = normal(rows + added, 6), normal(4, 6, 1)
    bench = Bench(algorithm, metric, tmp_path)
    shard = bench.opened(bench.inserted(bench.built(vectors[:rows]), vectors[rows:]))
    assert (shard.rows, shard.dimension) == (rows + added, 6)
    np.testing.assert_array_equal(shard.vectors(np.arange(rows + added)), vectors)
    answers = shard.search(queries, 5, width=200)
    assert_answers_are_sound(answers, vectors, queries, 5, metric)
    assert recall(answers[1], nearest(vectors, queries, 5, metric)[1]) > 0.9


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_copies_and_zero_vectors_are_inserted(algorithm, metric, tmp_path):
    known = np.concatenate([normal(400, 8), np.zeros((5, 8), np.float32)])
    added = np.concatenate([known[:60], known[:60], np.zeros((300, 8), np.float32)])
    vectors, queries = np.concatenate([known, added]), known[:30] + 0.01 * normal(30, 8, 1)
    bench = Bench(algorithm, metric, tmp_path)
    shard = bench.opened(bench.inserted(bench.built(known), added))
    deleted = np.random.default_rng(1).random(len(vectors)) < 0.3
    for mask in (None, deleted):
        answers = shard.search(queries, 8, width=200, deleted=mask)
        assert_answers_are_sound(answers, vectors, queries, 8, metric, mask)
        assert recall(answers[1], nearest(vectors, queries, 8, metric, mask)[1]) > 0.9


@pytest.mark.parametrize("dimension", [2, 17, 4096])
def test_rows_of_any_dimension_are_inserted(algorithm, dimension, tmp_path):
    # Of wide rows, as of embeddings, few directions differ: distances of random ones are all alike,
    # and no code of a bit a dimension could tell them apart.
    few = min(dimension, 24)
    across = normal(few, dimension, 2)
    vectors, queries = normal(360, few) @ across, normal(4, few, 1) @ across
    bench = Bench(algorithm, "cosine", tmp_path)
    shard = bench.opened(bench.inserted(bench.built(vectors[:300]), vectors[300:]))
    answers = shard.search(queries, 5, width=64)
    assert_answers_are_sound(answers, vectors, queries, 5, "cosine")
    assert recall(answers[1], nearest(vectors, queries, 5, "cosine")[1]) > 0.8


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_the_threads_change_no_byte_and_the_shard_stays_as_it_is(algorithm, metric, tmp_path):
    vectors = normal(1300, 12)
    bench = Bench(algorithm, metric, tmp_path)
    folder = bench.built(vectors[:1000])
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    deleted = np.random.default_rng(1).random(1000) < 0.2
    one, three = (
        bench.inserted(folder, vectors[1000:], deleted, threads=threads) for threads in (1, 3)
    )
    assert one == three
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_rows_of_another_width_are_refused(algorithm, tmp_path):
    bench = Bench(algorithm, "l2", tmp_path)
    with pytest.raises(BlobFormatError, match="5"):
        bench.inserted(bench.built(normal(30, 4)), normal(3, 5))
