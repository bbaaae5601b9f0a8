import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.lifecycle.evaluate import ground_truth
from puffin_ann.lifecycle.ingest.segments import VectorRows

K = 3


def _rows(vectors: np.ndarray, first: int) -> VectorRows:
    numbers = np.arange(first, first + len(vectors), dtype=np.uint32)
    locators = np.column_stack([numbers // 10, numbers % 10, numbers])
    return VectorRows(vectors, locators, np.zeros((len(vectors), 2), dtype=np.uint64))


@given(
    st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=40),
    st.integers(1, 4),
    st.sampled_from(["l2", "cosine", "ip"]),
)
def test_answers_of_batches_merge_to_those_of_all_rows_without_twins_that_are_found_anyway(
    points, batches, metric
):
    vectors = np.array(points, dtype=np.float32)
    queries = vectors[:: max(1, len(vectors) // 4)]
    parts = [
        ground_truth.of_rows(queries, _rows(part, int(first)), K, metric, threads=1)
        for part, first in zip(
            np.array_split(vectors, batches),
            np.cumsum([0, *map(len, np.array_split(vectors, batches))]),
            strict=False,
        )
    ]
    found = ground_truth.merge(parts)
    for number, query in enumerate(queries):
        copies = (vectors.view(np.uint32) == query.view(np.uint32)).all(axis=1)
        copies &= metric != "ip"  # by which a row need not be near itself
        exact = METRICS[metric].distances(query[None], vectors[~copies])[0]
        expected = np.full(K, np.inf, dtype=np.float32)
        nearest = np.sort(exact)[:K]
        expected[: len(nearest)] = nearest
        np.testing.assert_array_equal(found.distances[number], expected)
        assert found.duplicate_counts[number] == copies.sum()
        named = found.duplicates[found.duplicates[:, 0] == number, 3]
        assert sorted(named.tolist()) == np.flatnonzero(copies).tolist()


def test_no_more_twins_are_named_than_a_query_is_measured_with():
    vectors = np.ones((100, 2), dtype=np.float32)
    found = ground_truth.of_rows(vectors[:1], _rows(vectors, 0), K, "l2", threads=1)
    assert found.duplicate_counts.tolist() == [100]
    assert len(found.duplicates) == ground_truth.MAX_DUPLICATES
    assert np.isinf(found.distances).all()


def test_no_queries_and_no_rows_have_empty_answers():
    none = np.zeros((0, 2), dtype=np.float32)
    assert (
        ground_truth.of_rows(none, _rows(np.ones((3, 2), np.float32), 0), K, "l2", threads=1)
        is not None
    )
    found = ground_truth.of_rows(np.ones((2, 2), np.float32), _rows(none, 0), K, "l2", threads=1)
    assert np.isinf(found.distances).all()


def test_of_parts_that_know_more_and_fewer_neighbours_as_many_are_known_as_of_each():
    few, many = (ground_truth.empty(2, k) for k in (3, 8))
    many.distances[:] = np.arange(8)
    found = ground_truth.merge([many, few])
    assert found.distances.shape == found.cells.shape == (2, 3)
