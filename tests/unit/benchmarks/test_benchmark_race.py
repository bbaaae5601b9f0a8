import numpy as np
import pytest

from benchmarks.data import DataSet, enlarged, recall
from benchmarks.race import Contender, Point, effort_at, race, rate_at

TRUTH = np.arange(10, dtype=np.int64)[None, :]


def curve(*points: tuple[float, float]) -> list[Point]:
    return [Point(10 + number, at, [rate]) for number, (at, rate) in enumerate(points)]


def test_recall_is_the_share_of_true_neighbours_found():
    assert recall(TRUTH[:, ::-1], TRUTH) == 1.0
    assert recall(TRUTH + 4, TRUTH) == 0.6
    assert recall(np.full((1, 10), -1), TRUTH) == 0.0


def test_a_neighbour_answered_twice_counts_once():
    assert recall(np.zeros((1, 10), dtype=np.int64), TRUTH) == 0.1


def test_the_rate_between_two_points_is_their_geometric_mean_half_way():
    assert rate_at(curve((0.90, 8000.0), (0.96, 2000.0)), 0.93) == pytest.approx(4000.0)


def test_the_rate_at_a_measured_point_is_the_measured_one():
    points = curve((0.90, 8000.0), (0.95, 5000.0), (0.99, 1000.0))
    assert rate_at(points, 0.95) == pytest.approx(5000.0)


def test_points_out_of_order_are_put_in_order_of_recall():
    assert rate_at(curve((0.96, 2000.0), (0.90, 8000.0)), 0.93) == pytest.approx(4000.0)


def test_a_recall_that_is_not_reached_has_no_rate():
    assert rate_at(curve((0.90, 8000.0), (0.94, 2000.0)), 0.95) is None
    assert rate_at([], 0.95) is None


def test_a_curve_that_begins_above_the_recall_gives_the_rate_of_its_least_effort():
    assert rate_at(curve((0.97, 8000.0), (0.99, 2000.0)), 0.95) == 8000.0


def test_the_rate_of_a_point_is_the_median_of_its_rounds():
    assert Point(10, 0.9, [100.0, 900.0, 300.0]).rate == 300.0


def test_the_least_effort_that_reaches_a_recall_is_found():
    points = curve((0.90, 8000.0), (0.95, 5000.0), (0.99, 1000.0))
    assert effort_at(points, 0.94) == 11
    assert effort_at(points, 0.999) is None


def test_contenders_alternate_within_a_round_and_stop_where_recall_is_enough():
    queries = np.zeros((4, 2), dtype=np.float32)
    data = DataSet("glove-20k", queries, queries, np.repeat(TRUTH, 4, axis=0))
    calls: list[str] = []

    def contender(name: str, perfect_from: int) -> Contender:
        def search(batch: np.ndarray, effort: int) -> np.ndarray:
            calls.append(name)
            missed = 0 if effort >= perfect_from else 5
            return np.repeat(TRUTH + missed, len(batch), axis=0)

        return Contender(name, search)

    curves = race([contender("ours", 10), contender("theirs", 12)], data, rounds=2)

    assert [point.effort for point in curves["ours"]] == [10]
    assert [point.recall for point in curves["theirs"]] == [0.5, 1.0]
    assert all(len(point.rates) == 2 for curve in curves.values() for point in curve)
    # Three calls find the efforts; then each round warms and times: ours, theirs, theirs.
    a_round = ["ours", "ours", "theirs", "theirs", "theirs", "theirs"]
    assert calls == ["ours", "theirs", "theirs", *a_round, *a_round]


def test_enlarged_vectors_are_the_same_every_time_and_near_the_real_ones(tmp_path):
    real = np.random.default_rng(1).standard_normal((50, 8), dtype=np.float32) + 5
    one = enlarged(real, 300, tmp_path / "one.npy")
    other = enlarged(real, 300, tmp_path / "other.npy")
    assert one.shape == (300, 8)
    assert np.array_equal(one, other)
    assert len(np.unique(one, axis=0)) == 300
    assert abs(float(one.mean()) - float(real.mean())) < 0.3
