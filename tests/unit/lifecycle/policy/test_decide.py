"""Each rule by which a refresh is decided, on a small index of two shards."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.declaration import parse_declaration
from puffin_ann.lifecycle.policy.decide import decide, find_shards_to_rebuild
from puffin_ann.lifecycle.policy.decision import Rates
from puffin_ann.lifecycle.policy.forecast import absorbable, apportion
from puffin_ann.lifecycle.policy.inputs import Identified, ShardState
from tests.support.indexes.index_states import HOUR_MS, NOW, change, declared, delta, graph, state


def actions(decision):
    return {shard.shard_id: shard.action for shard in decision.shards}


def test_an_index_that_is_not_published_is_built():
    decision = decide(None, change(), declared(), now_ms=NOW)
    assert (decision.action, decision.reason) == ("build", "no version of the index is published")


def test_an_empty_table_without_an_index_needs_none():
    decision = decide(None, change(live=0), declared(), now_ms=NOW)
    assert (decision.action, decision.reason) == (
        "none",
        "no row is live, and no version is published",
    )


def test_an_unchanged_table_publishes_nothing_and_says_so():
    decision = decide(state(), change(), declared(), now_ms=NOW)
    assert decision.action == "none"
    assert decision.reason == "nothing changed since snapshot 7"
    assert decision.seconds == decision.bytes_written == decision.bytes_copied == 0


def test_few_fresh_changes_wait_and_the_reason_names_both_bounds():
    decision = decide(state(), change(rows_added=999, age_ms=HOUR_MS), declared(), now_ms=NOW)
    assert decision.action == "none"
    assert "999 changed rows are fewer than refresh.min_rows 1,000" in decision.reason
    assert "1.0 h old, within refresh.max_lag 1h" in decision.reason


@pytest.mark.parametrize(
    ("found", "arguments"),
    [
        (change(rows_added=1000), {}),
        (change(rows_added=500, rows_gone=500), {}),
        (change(rows_added=1, age_ms=HOUR_MS + 1), {}),
        (change(rows_gone=1, age_ms=HOUR_MS + 1), {}),
        (change(rows_added=1), {"force": True}),
    ],
)
def test_many_old_or_wanted_changes_are_published(found, arguments):
    assert decide(state(), found, declared(), now_ms=NOW, **arguments).action == "refresh"


def test_appended_rows_become_a_delta_and_no_shard_is_touched():
    decision = decide(state(), change(live=101_000, rows_added=1000), declared(), now_ms=NOW)
    assert actions(decision) == {0: "none", 1: "none"}
    assert decision.delta is not None
    assert (decision.delta.shard_id, decision.delta.rows) == (2, 1000)
    assert not decision.matches
    assert decision.bytes_copied == sum(shard.all_bytes for shard in state().shards)
    # Vector, row identity and partition of each row, and little else.
    assert 1000 * 432 <= decision.delta.bytes_written <= 1.02 * 1000 * 432
    assert "1,000 rows become delta 2" in decision.reason


def test_deleted_rows_become_tombstones_in_proportion_to_the_shards():
    shards = (graph(0, 75_000), graph(1, 25_000))
    decision = decide(state(*shards), change(live=96_000, rows_gone=4000), declared(), now_ms=NOW)
    assert actions(decision) == {0: "mask", 1: "mask"}
    assert [shard.rows for shard in decision.shards] == [3000, 1000]
    assert decision.delta is None
    written = sum(shard.bytes_written for shard in decision.shards)
    assert written <= 2 * 4000 + 16_000
    assert decision.bytes_copied == sum(shard.all_bytes for shard in shards)


def test_a_compaction_remaps_and_expects_no_delta():
    found = change(rows_added=100_000, rows_gone=100_000, rows_left_behind=100_000)
    decision = decide(state(), found, declared(), now_ms=NOW)
    assert decision.matches
    assert actions(decision) == {0: "remap", 1: "remap"}
    assert [shard.bytes_written < 2 * 50_000 * 28 for shard in decision.shards] == [True, True]
    assert decision.delta is not None
    assert decision.delta.rows == 0
    assert decision.delta.absorbed == ()


def test_a_rollback_of_deletes_restores_rows_instead_of_adding_them():
    shards = (graph(0, tombstones=500), graph(1, tombstones=500))
    found = change(rows_added=1000, rows_restored=1000)
    decision = decide(state(*shards), found, declared(), now_ms=NOW)
    assert decision.matches
    assert actions(decision) == {0: "remap", 1: "remap"}


def test_rows_that_were_never_indexed_cannot_be_restored():
    decision = decide(state(), change(rows_added=1000, rows_restored=1000), declared(), now_ms=NOW)
    assert not decision.matches
    assert decision.delta is not None
    assert decision.delta.rows == 1000


def test_what_was_identified_takes_the_place_of_what_was_expected():
    found = change(
        rows_added=50_000,
        rows_gone=50_000,
        rows_left_behind=50_000,
        identified=Identified(relocated=48_000, new=2000, deleted={1: 2000}),
    )
    decision = decide(state(), found, declared(), now_ms=NOW)
    assert decision.delta is not None
    assert decision.delta.rows == 2000
    assert "2,000 removed" in decision.shards[1].reason
    assert "0 removed" in decision.shards[0].reason


def test_deltas_above_their_ratio_are_merged_with_the_rows_that_came():
    shards = (graph(0), graph(1), delta(2, 3000), delta(5, 1500))
    decision = decide(state(*shards), change(live=105_500, rows_added=1000), declared(), now_ms=NOW)
    assert decision.merges
    assert decision.delta is None
    assert set(actions(decision).values()) == {"merge"}
    inserted = [shard.rows for shard in decision.shards if shard.kind == "graph"]
    assert sum(inserted) == 5500
    assert "5.5% of those in shards, above refresh.delta_ratio 5.0%" in decision.reason
    assert decision.bytes_copied == 0


def test_a_merge_that_is_due_waits_for_a_change_or_for_maintenance_and_is_told():
    index = state(graph(0), graph(1), delta(2, 6000))
    for force in (False, True):
        decision = decide(index, change(), declared(), now_ms=NOW, force=force)
        assert decision.action == "none"
        assert decision.reason.startswith(
            "nothing changed since snapshot 7; the next change or maintenance merges, since deltas "
            "would hold 6,000 live rows"
        )
    assert decide(index, change(rows_added=1), declared(), now_ms=NOW).merges
    decision = decide(index, change(), declared(), now_ms=NOW, maintenance=True)
    assert decision.merges
    assert "nothing changed since snapshot 7, but work is required" in decision.reason


def test_a_merge_that_only_a_waiting_change_would_make_due_waits_with_it():
    shards = (graph(0), graph(1), delta(2, 4900))
    decision = decide(state(*shards), change(rows_added=900), declared(), now_ms=NOW)
    assert decision.action == "none"
    assert "900 changed rows are fewer" in decision.reason
    late = change(rows_added=900, age_ms=2 * HOUR_MS)
    assert decide(state(*shards), late, declared(), now_ms=NOW).merges


def test_deleted_rows_of_deltas_do_not_count_towards_a_merge():
    index = state(graph(0), graph(1), delta(2, 6000, tombstones=900))
    found = change(rows_added=1)
    assert decide(index, found, declared(), now_ms=NOW).merges
    index = state(graph(0), graph(1), delta(2, 6000, tombstones=1000))
    assert decide(index, found, declared(), now_ms=NOW).action == "none"


def test_a_shard_of_many_tombstones_is_rebuilt_alone_and_only_in_a_maintenance_window():
    index = state(graph(0, tombstones=11_000), graph(1, tombstones=100))
    for found in (change(), change(rows_added=1)):
        assert decide(index, found, declared(), now_ms=NOW).action == "none"
    assert decide(index, change(), declared(), now_ms=NOW).reason == (
        "nothing changed since snapshot 7; the next maintenance rebuilds shard 0, of which 22% of "
        "its rows are deleted, above rebuild.tombstone_ratio 20%"
    )
    decision = decide(index, change(), declared(), now_ms=NOW, maintenance=True)
    assert actions(decision) == {0: "rebuild", 1: "none"}
    assert decision.shards[0].rows == 39_000
    assert "22% of its rows are deleted, above rebuild.tombstone_ratio 20%" in decision.reason


def test_a_maintenance_window_takes_along_changes_that_would_have_waited():
    index = state(graph(0, tombstones=11_000), graph(1))
    found = change(rows_gone=5)
    decision = decide(index, found, declared(), now_ms=NOW, maintenance=True)
    assert actions(decision) == {0: "rebuild", 1: "mask"}


def test_a_merge_and_a_rebuild_of_one_shard_are_one_rebuild():
    index = state(graph(0, tombstones=11_000), graph(1), delta(2, 9000))
    decision = decide(index, change(), declared(), now_ms=NOW, maintenance=True)
    assert actions(decision) == {0: "rebuild", 1: "merge", 2: "merge"}
    assert decision.shards[0].rows == 39_000 + 4500


def test_a_delta_of_many_tombstones_is_written_anew_in_a_maintenance_window():
    index = state(graph(0), graph(1), delta(2, 1000, tombstones=900), delta(3, 10))
    decision = decide(index, change(), declared(), now_ms=NOW, maintenance=True)
    assert decision.delta is not None
    assert (decision.delta.absorbed, decision.delta.rows) == ((2, 3), 110)
    assert decision.delta.shard_id == 4


def test_a_shard_of_which_nothing_lives_is_not_rebuilt_of_nothing():
    index = state(graph(0, 1000, tombstones=1000), graph(1))
    decision = decide(index, change(live=50_000), declared(), now_ms=NOW, maintenance=True)
    assert decision.action == "none"


@pytest.mark.parametrize(
    ("shards", "found", "due"),
    [
        ((graph(0, tombstones=10_000), graph(1)), change(), {}),
        ((graph(0, tombstones=11_000), graph(1)), change(), {0: 0.22}),
        ((graph(0, tombstones=9_000), graph(1, tombstones=9_000)), change(rows_gone=999), {}),
        (
            (graph(0, tombstones=9_600), graph(1, tombstones=9_600)),
            change(rows_gone=999, age_ms=HOUR_MS + 1),
            {0: 0.20198, 1: 0.202},
        ),
        ((graph(0, 1000, tombstones=1000), graph(1)), change(live=50_000), {}),
        ((graph(0), graph(1), delta(2, 1000, tombstones=900)), change(), {2: 0.9}),
        ((graph(0), graph(1), delta(2, 60_000, tombstones=20_000)), change(), {}),
    ],
    ids=["few", "many", "waiting", "waited long enough", "emptied", "delta", "merged anyway"],
)
def test_shards_are_told_that_a_maintenance_window_rebuilds_for_their_deleted_rows(
    shards, found, due
):
    index = state(*shards)
    told = find_shards_to_rebuild(index, found, declared(), now_ms=NOW)
    assert told == pytest.approx(due)
    decision = decide(index, found, declared(), now_ms=NOW, maintenance=True)
    assert set(told) == {
        shard.shard_id for shard in decision.shards if "are deleted" in shard.reason
    }


def test_a_table_without_live_rows_is_masked_whatever_is_declared():
    found = change(live=0, rows_gone=100_000, rows_left_behind=100_000, column="changed")
    decision = decide(state(), found, declared(seed=5), now_ms=NOW)
    assert actions(decision) == {0: "mask", 1: "mask"}
    assert sum(shard.rows for shard in decision.shards) == 100_000
    assert "no row is live any more" in decision.reason
    emptied = state(graph(0, tombstones=50_000), graph(1, tombstones=50_000))
    for maintenance in (False, True):
        after = decide(
            emptied, change(live=0), declared(seed=5), now_ms=NOW, maintenance=maintenance
        )
        assert after.action == "none"


@pytest.mark.parametrize("algorithm", ["exact", "vamana"])
def test_a_small_index_is_refreshed_even_if_seconds_were_to_tell(algorithm):
    small = state(graph(0, 30), graph(1, 30), algorithm=algorithm)
    found = change(live=60, rows_added=60, rows_gone=60, rows_left_behind=60)
    assert decide(small, found, declared(), now_ms=NOW, force=True).action == "refresh"


def test_an_exact_index_is_merged_without_inserting():
    index = state(algorithm="exact", rates=Rates(insert=1.0, build=1.0))
    decision = decide(index, change(live=110_000, rows_added=10_000), declared(), now_ms=NOW)
    assert decision.merges
    assert decision.seconds < 5


def centroids(**changes):
    return state(
        algorithm="centroid", shards=(), rows=1000, fingerprint=CENTROID.fingerprint(), **changes
    )


CENTROID = parse_declaration(
    {"name": "i", "table": "c.n.t", "column": "v", "algorithm": "centroid"}, source="test"
)


def test_an_index_of_centroids_gets_those_of_new_files_and_loses_those_of_vanished_ones():
    index = replace(centroids(), shards=())
    found = change(
        rows_added=5000, rows_gone=4000, rows_left_behind=4000, files_added=3, files_gone=2
    )
    decision = decide(index, found, CENTROID, now_ms=NOW, maintenance=True)
    assert decision.action == "refresh"
    assert (decision.shards, decision.delta, decision.matches) == ((), None, False)
    assert decision.bytes_written == decision.other_bytes > 0
    assert "centroids of 3 files are added, 2 leave" in decision.reason


def test_an_index_of_centroids_waits_and_is_built_like_others():
    index = replace(centroids(), shards=())
    assert decide(index, change(rows_added=5), CENTROID, now_ms=NOW).action == "none"
    other = CENTROID.model_copy(update={"seed": 9})
    assert decide(index, change(), other, now_ms=NOW).action == "build"


@given(st.integers(0, 10_000), st.dictionaries(st.integers(0, 20), st.integers(0, 500)))
def test_parts_sum_up_and_none_is_above_its_weight(total, weights):
    parts = apportion(total, weights)
    assert sum(parts.values()) == min(total, sum(weights.values()))
    assert all(0 <= parts[key] <= weight for key, weight in weights.items())


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=200))
def test_deltas_stay_few_and_a_row_is_seldom_written_again(appends):
    deltas: dict[int, ShardState] = {}
    written = 0
    for number, rows in enumerate(appends):
        absorbed = absorbable(rows, deltas.values())
        total = rows + sum(shard.live for shard in absorbed)
        for shard in absorbed:
            del deltas[shard.shard_id]
        deltas[number] = delta(number, total)
        written += total
    bits = sum(appends).bit_length()
    assert len(deltas) <= bits
    assert sum(delta.rows for delta in deltas.values()) == sum(appends)
    # Each time a row is absorbed its delta has grown by half at least.
    assert written <= sum(appends) * (2 * bits + 2)
