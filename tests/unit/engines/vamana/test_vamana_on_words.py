"""Vamana on real vectors: 10,000 rows of the GloVe sample that the demo indexes."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.support.indexes.shard_checks import (
    METRIC_NAMES,
    assert_answers_are_sound,
    nearest,
    opened,
    recall,
)
from tests.support.params import long_but_first
from tests.support.paths import SAMPLE

ROWS = 10_000


@pytest.fixture(scope="module")
def words():
    column = pq.read_table(SAMPLE, columns=["embedding"])["embedding"].combine_chunks()
    return column.flatten().to_numpy().reshape(-1, 100).astype(np.float32)


@pytest.mark.parametrize("beam", ["full", "pq", "edges"])
@pytest.mark.parametrize("metric", long_but_first(["cosine", "l2", "ip"]))
def test_recall_of_words(words, metric, beam, tmp_path):
    vectors, queries = words[:ROWS], words[ROWS : ROWS + 300]
    shard = opened("vamana", vectors, tmp_path, metric=metric, beam=beam)
    answers = shard.search(queries, 10, width=64)
    assert_answers_are_sound(answers, vectors, queries, 10, metric)
    found = recall(answers[1], nearest(vectors, queries, 10, metric)[1])
    assert found >= (0.93 if beam == "pq" else 0.97)


@pytest.mark.parametrize("width", [16, pytest.param(48, marks=pytest.mark.long)])
def test_a_width_finds_about_as_much_by_records_as_by_rows(words, width, tmp_path):
    from puffin_ann.engines.vamana import VamanaEngine

    vectors, queries = words[:ROWS], words[ROWS : ROWS + 500]
    assert opened("vamana", vectors, tmp_path).beam == "edges"
    expected = nearest(vectors, queries, 10, "l2")[1]
    by_records, by_rows = (
        recall(
            VamanaEngine().open(tmp_path / "shard", beam).search(queries, 10, width=width)[1],
            expected,
        )
        for beam in ("edges", "full")
    )
    assert by_records >= by_rows - 0.02


def test_a_third_of_the_words_deleted(words, tmp_path):
    vectors, queries = words[:ROWS], words[ROWS : ROWS + 200]
    deleted = np.random.default_rng(0).random(ROWS) < 1 / 3
    shard = opened("vamana", vectors, tmp_path, metric="cosine")
    answers = shard.search(queries, 10, width=64, deleted=deleted)
    assert_answers_are_sound(answers, vectors, queries, 10, "cosine", deleted)
    assert recall(answers[1], nearest(vectors, queries, 10, "cosine", deleted)[1]) >= 0.95


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_the_blob_is_the_same_whatever_the_threads(words, metric, tmp_path):
    import io

    from puffin_ann.engines import engine

    made = engine("vamana")
    blobs = []
    for threads in (1, 3):
        scratch = tmp_path / str(threads)
        scratch.mkdir()
        built = made.build(
            words[:5000],
            metric=metric,
            parameters=made.check({"R": 32, "L": 48}, 100),
            norm_bound=10.0,
            seed=5,
            threads=threads,
            scratch=scratch,
        )
        out = io.BytesIO()
        made.encode(built, out)
        blobs.append(out.getvalue())
    assert blobs[0] == blobs[1]


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_the_length_of_a_query_does_not_matter_to_the_inner_product(words, size, tmp_path):
    vectors = words[:3000]
    queries = words[ROWS : ROWS + 100] * np.float32(size)
    shard = opened("vamana", vectors, tmp_path, metric="ip")
    answers = shard.search(queries, 10, width=64)
    assert_answers_are_sound(answers, vectors, queries, 10, "ip")
    assert recall(answers[1], nearest(vectors, queries, 10, "ip")[1]) >= 0.97
