"""Which builds a person is asked about, and what is done until they are approved."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.declaration import ApprovalBounds
from puffin_ann.lifecycle.policy.approval import BuildCost, rework, why_ask, why_ask_again
from puffin_ann.lifecycle.policy.decide import decide
from puffin_ann.lifecycle.policy.decision import Drift
from tests.support.indexes.index_states import NOW, change, declared, delta, graph, state

COST = BuildCost(rows=1000, bytes=5_000_000, seconds=7200.0)
DRIFTED = state(graph(0), graph(1), delta(2, 2000), drift=Drift(built=1.0, added=1.6))


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (None, ""),
        ({}, ""),
        ({"rows": 1000, "bytes": 5_000_000, "work": "2h"}, ""),
        ({"rows": 999}, "1,000 rows, above build.approve_above.rows 999"),
        ({"bytes": 0}, "5,000,000 new bytes, above build.approve_above.bytes 0"),
        (
            {"rows": 1, "work": "90m"},
            "1,000 rows, above build.approve_above.rows 1; "
            "7,200 s of work, above build.approve_above.work 90m",
        ),
    ],
)
def test_who_declared_a_bound_is_asked_above_it_and_told_by_which_figure(bounds, said):
    assert why_ask(COST, None if bounds is None else ApprovalBounds(**bounds)) == said


@given(approved=st.integers(0, 10**9), now=st.integers(0, 10**9), bound=st.integers(0, 10**9))
def test_an_approval_holds_until_the_cost_has_grown_by_more_than_a_fifth(approved, now, bound):
    cost = COST.model_copy(update={"rows": now})
    before = COST.model_copy(update={"rows": approved})
    asks = why_ask_again(cost, before, ApprovalBounds(rows=bound))
    assert bool(asks) == (now > bound and 5 * now > 6 * approved)


def test_what_has_no_bound_may_grow():
    cheap = BuildCost(rows=0, bytes=0, seconds=0.0)
    assert why_ask_again(COST, cheap, None) == ""
    assert why_ask_again(COST, cheap, ApprovalBounds(work="2h")) == ""


def test_while_a_build_waits_the_index_follows_by_masks_and_deltas_alone():
    found = change(rows_added=20_000, rows_gone=50)
    assert decide(DRIFTED, found, declared(), now_ms=NOW).action == "build"
    decision = decide(DRIFTED, found, declared(), now_ms=NOW, postpones=True)
    assert decision.action == "refresh"
    assert not decision.merges
    assert decision.delta is not None
    assert {shard.action for shard in decision.shards if shard.kind == "graph"} <= {"mask", "remap"}
    assert decide(DRIFTED, change(), declared(), now_ms=NOW, postpones=True).action == "none"


def test_what_merges_and_rebuilds_cost_is_asked_about_and_masks_and_deltas_are_not():
    merging = decide(state(), change(rows_added=8000), declared(), now_ms=NOW)
    assert merging.merges
    cost = rework(merging)
    assert cost.rows == 8000
    assert cost.bytes >= sum(shard.all_bytes for shard in state().shards)
    assert 0 < cost.seconds < merging.seconds
    worn = state(graph(0, tombstones=20_000), graph(1))
    rebuilding = decide(worn, change(live=80_000), declared(), now_ms=NOW, maintenance=True)
    assert rework(rebuilding).rows == 30_000
    nothing = BuildCost(rows=0, bytes=0, seconds=0.0)
    for found in (change(rows_added=3000, rows_gone=50), change(rows_added=8000, rows_gone=50)):
        waits = decide(state(), found, declared(), now_ms=NOW, postpones=True)
        assert (waits.action, waits.delta is None, rework(waits)) == ("refresh", False, nothing)


def test_what_cannot_be_read_is_made_again_without_asking():
    damaged = state(unreadable={0: "its file is gone"})
    lost = change(rows_lost=50_000)
    decision = decide(damaged, lost, declared(), now_ms=NOW)
    assert [shard.action for shard in decision.shards if shard.shard_id == 0] == ["rebuild"]
    assert rework(decision).rows == 0


def test_what_no_mask_nor_delta_can_follow_waits_for_the_build():
    other = declared(seed=3)
    found = change(rows_added=20_000)
    assert decide(DRIFTED, found, other, now_ms=NOW, postpones=True).action == "build"
    emptied = replace(DRIFTED, shards=tuple(graph(n, tombstones=50_000) for n in range(2)))
    rows = change(live=3000, rows_added=3000)
    assert decide(emptied, rows, declared(), now_ms=NOW, postpones=True).action == "build"
