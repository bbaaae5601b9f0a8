"""A merge that would have lost recall waits for more rows, and is told of until it is done."""

import pytest

from puffin_ann.lifecycle.policy.decide import decide
from puffin_ann.lifecycle.policy.undone import Undone
from tests.support.indexes.index_states import NOW, change, declared, delta, graph, state

TARGET = declared().recall_target
MERGE = Undone(run_id="run-3", reason="shard 0 is worse", target=TARGET, delta_rows=6000)


def decided(undone, shards, added, **options):
    found = state(*shards, undone=undone)
    live = sum(shard.live for shard in found.shards) + added
    return decide(
        found, change(live=live, rows_added=added), declared(), now_ms=NOW, force=True, **options
    )


@pytest.mark.parametrize("maintenance", [False, True])
def test_a_merge_that_was_left_waits_for_twice_the_rows(maintenance):
    shards = (graph(0), graph(1), delta(2, 6000))
    for added, merges in ((10, False), (5999, False), (6000, True)):
        made = decided(MERGE, shards, added, maintenance=maintenance)
        assert (made.action, made.merges) == ("refresh", merges)
        assert (made.delta is None) == merges


def test_until_then_rows_become_deltas_and_it_is_told_why_and_what_to_do():
    made = decided(MERGE, (graph(0), graph(1), delta(2, 6000)), 10)
    assert made.delta is not None
    for said in ("merged from 12,000 on", "run run-3", "shard 0 is worse", "build i --force"):
        assert said in made.reason


def test_it_is_told_though_nothing_changed_and_nothing_is_done_then():
    for maintenance in (False, True):
        made = decided(MERGE, (graph(0), graph(1), delta(2, 6000)), 0, maintenance=maintenance)
        assert made.action == "none"
        assert "merged from 12,000 on" in made.reason


def test_nothing_is_told_of_a_merge_that_would_not_be_due_anyway():
    made = decided(MERGE, (graph(0), graph(1), delta(2, 4000)), 10)
    assert "run-3" not in made.reason


def test_with_a_lower_target_all_is_tried_again():
    left = MERGE.model_copy(update={"target": TARGET + 0.01, "live_rows": {0: 30_000}})
    shards = (graph(0, tombstones=20_000), graph(1), delta(2, 6000))
    made = decided(left, shards, 10, maintenance=True)
    assert made.merges
    assert [shard.action for shard in made.shards] == ["rebuild", "merge", "merge"]


@pytest.mark.parametrize(("tombstones", "action"), [(20_000, "none"), (35_000, "rebuild")])
def test_a_shard_that_was_not_built_again_waits_until_half_of_it_is_gone(tombstones, action):
    left = Undone(run_id="run-3", reason="worse", target=TARGET, live_rows={0: 30_000})
    shards = (graph(0, tombstones=tombstones), graph(1))
    made = decided(left, shards, 10, maintenance=True)
    assert made.shards[0].action == action
