"""Recall from answers and true distances."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann.lifecycle.evaluate.ground_truth import MAX_DUPLICATES, Truth
from puffin_ann.lifecycle.evaluate.measure import Measure, RecallMeter, recalls_of

PATHS = {1: "a.parquet"}


def recalls(found: list[list[float]], exact: list[list[float]]) -> list[float]:
    query = np.repeat(np.arange(len(found)), [len(row) for row in found])
    distance = np.array([number for row in found for number in row], np.float32)
    return recalls_of(query, distance, np.array(exact, np.float32)).tolist()


def test_a_recall_is_the_share_of_true_neighbours_found():
    assert recalls([[1, 2], [1, 9], [8, 9]], [[1, 2], [1, 2], [1, 2]]) == [1.0, 0.5, 0.0]


def test_an_answer_as_far_as_the_last_true_neighbour_counts_whichever_row_it_is():
    assert recalls([[2, 2]], [[1, 2]]) == [1.0]


def test_more_answers_than_there_are_neighbours_count_once():
    assert recalls([[1, 2, 2, 2]], [[1, 2]]) == [1.0]


def test_where_fewer_rows_are_live_than_asked_for_all_of_them_are_enough():
    assert recalls([[1], [1, 5]], [[1, np.inf], [1, 5]]) == [1.0, 1.0]


def test_a_query_without_any_answer_has_found_nothing():
    assert recalls([[], [3]], [[1, 2], [3, 4]]) == [0.0, 0.5]


def test_an_interval_is_about_the_mean_and_within_what_a_recall_can_be():
    found = Measure.of(np.array([1.0, 1.0, 0.5, 1.0]))
    assert found.recall == 0.875
    assert found.low == pytest.approx(0.875 - 1.96 * 0.25 / 2)
    assert found.high == 1.0
    assert found.queries == 4


def test_a_single_query_tells_nothing_of_others():
    assert Measure.of(np.array([0.9])) == Measure(0.9, 0.0, 1.0, 1)


def test_equal_recalls_leave_no_doubt():
    assert Measure.of(np.array([0.75, 0.75])) == Measure(0.75, 0.75, 0.75, 2)


class Searched:
    """An index of which the answers to each query are known: a list of (row, distance)."""

    def __init__(self, answers: list[list[tuple[int, float]]]) -> None:
        self.answers = answers
        self.asked: list[SimpleNamespace] = []

    def search(self, queries, k, **options) -> pa.Table:
        self.asked.append(SimpleNamespace(queries=len(queries), k=k, **options))
        rows = [
            (int(number), row, distance)
            for number in queries[:, 0]
            for row, distance in self.answers[int(number)][:k]
        ]
        return pa.table(
            {
                "query": pa.array(
                    [list(queries[:, 0]).index(number) for number, _, _ in rows], pa.int32()
                ),
                "distance": pa.array([distance for _, _, distance in rows], pa.float32()),
                "locator": pa.array(
                    [{"file": PATHS[1], "row_group": 0, "row_offset": row} for _, row, _ in rows]
                ),
            }
        )


def meter(distances, duplicates=(), counts=None) -> RecallMeter:
    """Queries that are their own numbers, with the distances of their neighbours."""
    exact = np.array(distances, np.float32)
    truth = Truth(
        exact,
        np.array([(query, 1, 0, row) for query, row in duplicates], np.int64).reshape(-1, 4),
        np.array(counts if counts is not None else [0] * len(exact), np.int64),
        np.full(exact.shape, -1, np.int32),
    )
    queries = np.arange(len(exact), dtype=np.float32)[:, None]
    return RecallMeter(queries, truth, exact.shape[1], PATHS)


def test_a_row_equal_to_its_query_counts_neither_way():
    index = Searched([[(7, 0.0), (8, 1.0), (9, 2.0)]])
    found = meter([[1, 2]], duplicates=[(0, 7)], counts=[1]).measure(
        index, width=16, probe_partitions=0
    )
    assert found.recall == 1.0
    (asked,) = index.asked
    assert asked.k == 3  # room for the query itself
    assert asked.probe_partitions is None  # every cell


def test_a_row_that_equals_another_query_counts():
    index = Searched([[(8, 0.0), (9, 1.0)], [(7, 0.0), (5, 9.0)]])
    found = meter([[0, 1], [0, 1]], duplicates=[(0, 7)], counts=[0, 0]).measure(
        index, width=16, probe_partitions=2
    )
    assert found.recall == 0.75


def test_a_part_leaves_out_queries_of_too_many_equals_and_of_no_neighbour():
    whole = meter(
        [[1], [1], [np.inf], [1], [1]],
        duplicates=[(0, 5), (3, 6), (4, 7)],
        counts=[1, MAX_DUPLICATES + 1, 0, 1, 1],
    )

    part = whole.part(0, 4)

    assert part.queries[:, 0].tolist() == [0, 3]
    assert part.truth.duplicates.tolist() == [[0, 1, 0, 5], [1, 1, 0, 6]]
    assert part.truth.duplicate_counts.tolist() == [1, 1]


def test_of_no_query_nothing_is_searched_and_nothing_found_wanting():
    index = Searched([])
    assert meter([[1]]).part(1, 1).measure(index, width=16, probe_partitions=1).queries == 0
    assert index.asked == []
