"""When rows that were added no longer fit an index, and the words for it."""

import pytest

from puffin_ann.lifecycle.policy.decision import Drift
from puffin_ann.lifecycle.policy.drift import ROWS_PER_CENTROID, why_drifted
from tests.support.indexes.index_states import declared, delta, graph, state


def why(*shards, drift: Drift, rebuild=None, **changes) -> str:
    given = declared(rebuild=rebuild or {"drift": 1.5, "imbalance": 3.0})
    return why_drifted(state(*shards, drift=drift, **changes), given)


SHARDS = (graph(0), graph(1), delta(2, 1000))


def test_rows_farther_away_than_is_allowed_are_told_by_how_much():
    assert "1.60 times as far" in why(*SHARDS, drift=Drift(built=1.0, added=1.6))
    assert why(*SHARDS, drift=Drift(built=1.0, added=1.5)) == ""


def test_of_few_rows_no_distance_is_concluded():
    few = (graph(0), graph(1), delta(2, 999))
    assert why(*few, drift=Drift(built=1.0, added=9.0)) == ""


def test_rows_merged_last_count_where_no_delta_holds_any():
    drift = Drift(built=1.0, added=9.0, merged=1000)
    assert "times as far" in why(graph(0), graph(1), drift=drift)
    assert why(graph(0), graph(1), drift=Drift(built=1.0, added=9.0, merged=999)) == ""


def test_centroids_of_few_rows_each_fit_nothing_that_comes_later():
    drift, rows = Drift(built=1.0, added=9.0), 100_000
    assert why(*SHARDS, drift=drift, cells=rows // ROWS_PER_CENTROID)
    assert why(*SHARDS, drift=drift, cells=rows // ROWS_PER_CENTROID + 1) == ""


def test_an_index_of_which_no_distance_is_known_has_not_drifted():
    assert why(*SHARDS, drift=Drift(added=9.0)) == ""


@pytest.mark.parametrize(("metric", "told"), [("ip", True), ("l2", False), ("cosine", False)])
def test_a_norm_above_the_bound_matters_to_the_inner_product_alone(metric, told):
    drift = Drift(largest_norm=2.1)
    found = why(*SHARDS, drift=drift, metric=metric, norm_bound=2.0)
    assert ("norm 2.1, above the bound 2" in found) is told


def test_a_norm_that_was_summed_in_another_order_is_within_its_bound():
    drift = Drift(largest_norm=2.0 * (1 + 1e-7))
    assert why(*SHARDS, drift=drift, metric="ip", norm_bound=2.0) == ""


def test_shards_that_grew_apart_are_told_unless_the_build_made_them_so():
    shards = (graph(0, rows=70_000), graph(1, rows=2000), graph(2, rows=3000), graph(3, rows=5000))
    assert "3.50 times the mean" in why(*shards, drift=Drift(imbalance=1.2))
    assert why(*shards, drift=Drift(imbalance=3.6)) == ""
    assert why(*shards, drift=Drift()) == ""  # how they were built is not known
