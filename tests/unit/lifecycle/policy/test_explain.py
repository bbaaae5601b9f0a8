"""Words for what a refresh does."""

import pytest

from puffin_ann.lifecycle.policy.decision import DeltaAction, ShardAction
from puffin_ann.lifecycle.policy.explain import changed_fields, refresh_sentence, spoken_seconds
from tests.support.indexes.index_states import change, declared, graph, state


def shard(shard_id: int, action: str, reason: str = "") -> ShardAction:
    return ShardAction(
        shard_id=shard_id,
        kind="graph",
        action=action,
        reason=reason,
        rows=1,
        bytes_written=1,
        bytes_copied=1,
        seconds=1.0,
    )


def new_delta(rows: int, absorbed=()) -> DeltaAction:
    return DeltaAction(
        shard_id=4, reason="", rows=rows, absorbed=absorbed, bytes_written=1, seconds=1.0
    )


def test_a_sentence_says_what_changed_and_what_is_done_about_it():
    found = change(rows_added=1500, rows_gone=20)
    said = refresh_sentence(
        state(), found, [shard(0, "mask"), shard(1, "none")], new_delta(1500, (2, 3)), ""
    )
    assert said == (
        "1,500 rows added and 20 rows removed since snapshot 7: mask them in 1 shard; "
        "1,500 rows become delta 4, in place of 2, 3 as well"
    )


def test_shards_that_are_built_again_are_named_with_the_reason():
    shards = [shard(0, "rebuild", "40 % are tombstones"), shard(3, "rebuild", "50 %")]
    said = refresh_sentence(state(), change(), shards, None, "")
    assert said == (
        "nothing changed since snapshot 7, but work is required: "
        "rebuild shard 0, 3, of which 40 % are tombstones"
    )


def test_a_merge_is_told_before_all_else_with_its_cause():
    said = refresh_sentence(
        state(), change(rows_added=5), [shard(0, "remap"), shard(1, "remap")], None, "deltas grew"
    )
    assert said == (
        "5 rows added since snapshot 7: merge, since deltas grew; identify them, and remap those "
        "that were only relocated, in 2 shards"
    )


def test_an_index_of_files_tells_of_files():
    found = change(rows_added=5, files_added=1200, files_gone=3)
    assert refresh_sentence(state(), found, [], None, "").endswith(
        ": centroids of 1,200 files are added, 3 leave"
    )


def test_an_emptied_table_is_told_as_that():
    said = refresh_sentence(
        state(), change(live=0, rows_gone=9), [shard(0, "none")], new_delta(0), ""
    )
    assert said == ("no row is live any more since snapshot 7: no row is expected in a delta")


def test_rows_are_said_to_be_new_once_they_are_known():
    """As many may have come as went, and some of them be new all the same."""
    rewritten = change(rows_added=9, rows_gone=9)
    said = refresh_sentence(state(), rewritten, [shard(0, "remap")], new_delta(0, (2,)), "")
    assert said.endswith(
        "remap those that were only relocated, in 1 shard; those that are new become delta 4, in "
        "place of 2 as well"
    )
    said = refresh_sentence(state(), change(rows_added=1), [shard(0, "none")], new_delta(1), "")
    assert said == "1 row added since snapshot 7: 1 row becomes delta 4"


def test_where_nothing_is_done_to_any_shard_what_is_live_is_covered():
    said = refresh_sentence(state(graph()), change(rows_added=1), [shard(0, "none")], None, "")
    assert said.endswith(": cover what is live")


def test_fields_that_shape_the_index_are_named_with_what_they_were():
    before = state(declaration=declared(metric="l2", shards=2).model_dump_json())
    assert changed_fields(before, declared(metric="ip", shards=2)) == "metric 'l2' → 'ip'"


@pytest.mark.parametrize("recorded", ["", "no JSON", "[]"])
def test_where_the_declaration_is_not_known_the_fingerprint_is_told(recorded):
    found = changed_fields(state(declaration=recorded), declared(metric="ip"))
    assert found == "its fingerprint is another"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1.0 min"), (5400, "1.5 h"), (86_400, "1.0 d")],
)
def test_a_time_is_told_in_its_largest_fitting_unit(seconds, said):
    assert spoken_seconds(seconds) == said
