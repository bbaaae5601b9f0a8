"""The history that an index carries: each run once, the newest first, and never without end."""

import pytest

from puffin_ann.lifecycle.documents.run_record import RunRecord
from puffin_ann.lifecycle.policy.decision import Decision, ShardAction
from puffin_ann.lifecycle.policy.undone import Undone
from puffin_ann.lifecycle.publish.run_records import KEPT, name_action, with_record, with_undone


def record(run_id: str, rows: int = 0) -> RunRecord:
    return RunRecord(run_id=run_id, action="refresh", at_ms=0, rows=rows)


def decision(*actions: str, merges: bool = False) -> Decision:
    shards = [
        ShardAction(
            shard_id=number,
            kind="graph",
            action=action,
            reason="",
            rows=0,
            bytes_written=0,
            bytes_copied=0,
            seconds=0,
        )
        for number, action in enumerate(actions)
    ]
    return Decision(action="refresh", reason="", shards=tuple(shards), merges=merges)


def test_the_run_that_publishes_comes_before_all_others():
    found = with_record(record("new"), [record("before"), record("first")])
    assert [record.run_id for record in found] == ["new", "before", "first"]


def test_a_run_that_is_tried_again_is_in_it_once_with_what_it_did_last():
    found = with_record(record("run", rows=2), [record("run", rows=1), record("first")])
    assert [(record.run_id, record.rows) for record in found] == [("run", 2), ("first", 0)]


def test_the_oldest_runs_are_forgotten_so_that_a_version_stays_small():
    found: tuple[RunRecord, ...] = ()
    for number in range(KEPT + 5):
        found = with_record(record(f"run-{number}"), found)
    assert len(found) == KEPT
    assert (found[0].run_id, found[-1].run_id) == (f"run-{KEPT + 4}", "run-5")


@pytest.mark.parametrize(
    ("made", "action"),
    [
        (None, "build"),
        (decision("none", "mask", "remap"), "refresh"),
        (decision("mask", "rebuild"), "rebuild"),
        (decision("rebuild", merges=True), "merge"),
    ],
)
def test_a_refresh_is_called_by_the_most_that_it_did(made, action):
    assert name_action(made, Undone()) == action


@pytest.mark.parametrize(
    ("made", "refused", "action"),
    [
        (decision("merge", "merge", merges=True), (0,), "merge"),
        (decision("merge", "merge", merges=True), (0, 1), "refresh"),
        (decision("rebuild", "mask"), (0,), "refresh"),
        (decision("rebuild", "rebuild"), (0,), "rebuild"),
    ],
)
def test_a_refresh_is_not_called_by_what_it_left_undone(made, refused, action):
    undone = Undone(reason="shard 0 finds too little", refused=refused, delta_rows=9)
    assert name_action(made, undone) == action
    assert with_undone("9 rows added", undone).endswith(
        "left undone, since shard 0 finds too little"
    )
