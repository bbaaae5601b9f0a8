"""The rules by which a whole index is built anew instead of being refreshed."""

from dataclasses import replace

import pytest

from puffin_ann.lifecycle.policy.decide import decide
from puffin_ann.lifecycle.policy.decision import Drift, Rates
from tests.support.indexes.index_states import HOUR_MS, NOW, change, declared, delta, graph, state


@pytest.mark.parametrize(
    "changes",
    [{"recall_target": 0.8}, {"gate": {"k": 5}}, {"refresh": {"delta_ratio": 0.2}}, {"name": "j"}],
)
def test_a_change_that_shapes_nothing_publishes_nothing(changes):
    assert decide(state(), change(), declared(**changes), now_ms=NOW).action == "none"


def test_a_change_of_shape_builds_and_names_the_fields():
    found = change(rows_added=5)
    decision = decide(state(), found, declared(seed=3, parameters={"R": 32}), now_ms=NOW)
    assert decision.action == "build"
    assert "seed 0 → 3" in decision.reason
    assert "'R': 64" in decision.reason
    assert decision.bytes_written > 100_000 * 600
    assert decision.seconds > 0


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_change_of_shape_is_told_even_if_the_old_declaration_cannot_be_read(text):
    decision = decide(state(declaration=text, fingerprint="x"), change(), declared(), now_ms=NOW)
    assert decision.action == "build"


def test_another_column_type_or_width_builds():
    reason = "column 'v' holds vectors of 5 numbers now; indexed were 100"
    decision = decide(state(), change(column=reason), declared(), now_ms=NOW)
    assert (decision.action, decision.reason) == ("build", reason)


def test_rows_that_come_when_no_indexed_row_lives_are_built():
    emptied = state(graph(0, tombstones=50_000), graph(1, tombstones=50_000))
    decision = decide(emptied, change(live=3000, rows_added=3000), declared(), now_ms=NOW)
    assert decision.action == "build"
    assert "none of the rows its shards were built from is live" in decision.reason


def test_fewer_rows_than_shards_are_built_likewise_into_as_many_as_they_fill():
    emptied = state(graph(0, tombstones=50_000), graph(1, tombstones=50_000))
    found = change(live=1, rows_added=1, age_ms=2 * HOUR_MS)
    assert decide(emptied, found, declared(), now_ms=NOW).action == "build"


def test_shards_that_a_young_table_could_not_fill_are_built_once_it_can():
    young = state(graph(0, rows=1))
    soon, enough = change(live=1, rows_gone=1), change(live=2, rows_added=1)
    assert decide(young, soon, declared(), now_ms=NOW, force=True).action == "refresh"
    decision = decide(young, enough, declared(), now_ms=NOW)
    assert decision.action == "build"
    assert "it has 1 of the 2 declared shards" in decision.reason
    unchanged = decide(young, change(live=2), declared(), now_ms=NOW)
    assert unchanged.action == "none"
    assert "the next change or maintenance builds it again" in unchanged.reason
    assert decide(young, change(live=2), declared(), now_ms=NOW, maintenance=True).action == "build"


@pytest.mark.parametrize(
    ("drift", "metric", "said"),
    [
        (Drift(built=1.0, added=1.6), "l2", "1.60 times as far from their centroids"),
        (Drift(largest_norm=2.1), "ip", "has norm 2.1, above the bound 2"),
    ],
)
def test_drift_builds_anew(drift, metric, said):
    index = state(graph(0), graph(1), delta(2, 2000), drift=drift, metric=metric, norm_bound=2.0)
    decision = decide(index, change(rows_added=1), declared(), now_ms=NOW)
    assert decision.action == "build"
    assert said in decision.reason
    exact = replace(index, algorithm="exact")
    assert decide(exact, change(rows_added=1), declared(), now_ms=NOW).action == "none"


def test_drift_alone_waits_for_a_change_or_for_maintenance_and_is_told():
    index = state(graph(0), graph(1), delta(2, 2000), drift=Drift(built=1.0, added=1.6))
    decision = decide(index, change(), declared(), now_ms=NOW, force=True)
    assert decision.action == "none"
    assert decision.reason.startswith(
        "nothing changed since snapshot 7; the next change or maintenance builds it again, since "
        "rows added are 1.60 times as far"
    )
    assert decide(index, change(), declared(), now_ms=NOW, maintenance=True).action == "build"


@pytest.mark.parametrize(
    ("shards", "drift", "metric"),
    [
        ((graph(0), graph(1), delta(2, 2000)), Drift(built=1.0, added=1.4), "l2"),
        ((graph(0), graph(1), delta(2, 20)), Drift(built=1.0, added=9.0), "l2"),
        ((graph(0), graph(1), delta(2, 2000)), Drift(largest_norm=2.1), "l2"),
        ((graph(0), graph(1), delta(2, 2000)), Drift(largest_norm=2.0), "ip"),
    ],
)
def test_a_little_drift_does_not(shards, drift, metric):
    index = state(*shards, drift=drift, metric=metric, norm_bound=2.0)
    assert decide(index, change(rows_added=1), declared(), now_ms=NOW).action == "none"


@pytest.mark.parametrize(("merged", "action"), [(2000, "build"), (20, "none")])
def test_rows_that_were_merged_at_once_count_as_drift_too(merged, action):
    index = state(drift=Drift(built=1.0, added=1.6, merged=merged))
    assert decide(index, change(rows_added=1), declared(), now_ms=NOW).action == action


def test_centroids_of_few_rows_each_do_not_drift():
    drift = Drift(built=1.0, added=1.6)
    shards = (graph(0), graph(1), delta(2, 2000))
    for cells, action in ((100_000 // 16, "build"), (100_000 // 16 + 1, "none")):
        index = state(*shards, drift=drift, cells=cells)
        assert decide(index, change(rows_added=1), declared(), now_ms=NOW).action == action


def test_imbalance_builds_anew_only_where_it_was_not_built_so():
    shards = (graph(0, 90_000), *(graph(number, 2000) for number in range(1, 6)))
    declaration = declared(shards=6)
    for built, action in ((1.2, "build"), (5.4, "none")):
        index = state(*shards, fingerprint=declaration.fingerprint(), drift=Drift(imbalance=built))
        assert decide(index, change(rows_added=1), declaration, now_ms=NOW).action == action


def test_refreshing_that_takes_longer_than_building_is_a_build():
    found = change(live=150_000, rows_added=50_000)
    assert decide(state(), found, declared(), now_ms=NOW).action == "refresh"
    slow = state(rates=Rates(insert=1000.0))
    decision = decide(slow, found, declared(), now_ms=NOW)
    assert decision.action == "build"
    assert "refreshing is expected to take 5" in decision.reason
