"""Deltas: few rows compared, many in a graph, and each with its partition."""

import io
import json

import numpy as np
import pytest

from puffin_ann.engines.delta import COMPARED_ROWS, DELTA
from puffin_ann.errors import BlobFormatError, FormatError, LocalCopyError
from tests.support.indexes.shard_checks import (
    METRIC_NAMES,
    assert_answers_are_sound,
    nearest,
    recall,
)


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def encoded(vectors, folder, metric="l2", cells=None, seed=0):
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    if cells is None:
        cells = np.arange(len(vectors), dtype=np.uint32) % 7
    norm = float(np.linalg.norm(vectors, axis=1).max(initial=0.0))
    built = DELTA.build(
        vectors,
        cells,
        metric=metric,
        norm_bound=norm,
        seed=seed,
        threads=2,
        scratch=scratch,
    )
    out = io.BytesIO()
    assert DELTA.encode(built, out) == len(out.getvalue())
    return out.getvalue()


def opened(vectors, folder, metric="l2"):
    shard = folder / "shard"
    shard.mkdir(parents=True)
    DELTA.unpack(io.BytesIO(encoded(vectors, folder, metric)), shard)
    return DELTA.open(shard)


@pytest.mark.parametrize("metric", METRIC_NAMES)
@pytest.mark.parametrize("rows", [0, 1, 5, 300])
def test_few_rows_are_answered_exactly(metric, rows, tmp_path):
    vectors, queries = normal(rows, 9), normal(6, 9, seed=1)
    deleted = np.random.default_rng(2).random(rows) < 0.3
    delta = opened(vectors, tmp_path, metric)

    answers = delta.search(queries, 8, width=8, deleted=deleted)

    expected = nearest(vectors, queries, 8, metric, deleted)
    np.testing.assert_array_equal(answers, expected)
    np.testing.assert_array_equal(delta.exhaustive(queries, 8, deleted=deleted), expected)
    np.testing.assert_array_equal(delta.cells, np.arange(rows) % 7)
    assert (delta.rows, delta.dimension, delta.resident_bytes) == (rows, 9, rows * 36)


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_many_rows_get_a_graph_and_answers_stay_sound(metric, tmp_path):
    vectors, queries = normal(COMPARED_ROWS + 1, 10), normal(30, 10, seed=1)
    deleted = np.random.default_rng(2).random(len(vectors)) < 0.4
    delta = opened(vectors, tmp_path, metric)

    assert json.loads((tmp_path / "shard" / "shard.json").read_text())["values"]["max_degree"]
    for mask in (None, deleted):
        answers = delta.search(queries, 10, width=120, deleted=mask, threads=2)
        assert_answers_are_sound(answers, vectors, queries, 10, metric, mask)
        expected = nearest(vectors, queries, 10, metric, mask)
        assert recall(answers[1], expected[1]) > 0.95
        np.testing.assert_array_equal(delta.exhaustive(queries, 10, deleted=mask), expected)
    np.testing.assert_array_equal(delta.vectors(np.array([3, 1])), vectors[[3, 1]])
    np.testing.assert_array_equal(delta.cells, np.arange(len(vectors)) % 7)


def test_equal_rows_give_equal_bytes(tmp_path):
    vectors = normal(COMPARED_ROWS + 200, 6)

    assert encoded(vectors, tmp_path / "a") == encoded(vectors, tmp_path / "b")


def test_a_delta_whose_cells_do_not_fit_its_rows_is_refused(tmp_path):
    with pytest.raises(BlobFormatError, match="cells"):
        encoded(normal(5, 3), tmp_path, cells=np.zeros(4, np.uint32))


def test_a_corrupted_delta_is_refused(tmp_path):
    data = bytearray(encoded(normal(50, 4), tmp_path))
    data[len(data) // 2] ^= 1

    with pytest.raises(FormatError):
        DELTA.unpack(io.BytesIO(bytes(data)), tmp_path)
    with pytest.raises(LocalCopyError):
        DELTA.open(tmp_path)
