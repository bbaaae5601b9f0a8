"""Random histories of tables with row ids, and of writers that break their rules.

After each refresh every row is answered with its own vector and its own values: no row was taken
for another, whether its vector was read or not.
"""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from puffin_ann.blobs.changes import column_changes
from puffin_ann.blobs.shards import graph
from tests.support.lake.row_id_history import DONE, RowIdHistory
from tests.support.lifecycle import builds
from tests.support.lifecycle.refreshes import blob_digests

EXAMPLES = int(os.environ.get("HISTORY_EXAMPLES", "4"))


def begun(algorithm="exact", include=()):
    """A history that has begun: two files of 20 and 10 rows, which are indexed."""
    history = RowIdHistory()
    history.start(algorithm, None, include, 4_000_000, 100)
    return history


EVERY = list(range(8))
"""Picks every file."""

FOREIGN_ROWS = {
    "take the place of ours": [[("overwrite_by_foreign_files", ([0], False))]],
    "take the place of ours and are compacted": [
        [("overwrite_by_foreign_files", ([0], False)), ("compact", (EVERY, 1))]
    ],
    "have the id of a row without a vector": [
        [("append_equals", ([1],))],
        [("import_files", ([31], False)), ("compact", (EVERY, 0))],
    ],
    "have the id of a row that is deleted, and are compacted": [
        [
            ("import_files", ([0], False)),
            ("delete_copy_on_write", ([0], [0])),
            ("compact", (EVERY, 0)),
        ]
    ],
    "have the id of a row that is deleted, and their file is lost": [
        [("import_files", ([0], False))],
        [
            ("delete_copy_on_write", ([0], [0])),
            ("compact", ([1], 0)),
            ("lose_a_removed_file", (1,)),
        ],
    ],
}


@pytest.mark.parametrize("histories", FOREIGN_ROWS.values(), ids=FOREIGN_ROWS)
def test_rows_of_another_table_are_taken_for_none_of_ours_where_they(histories):
    history = begun()
    try:
        for changes in histories:
            history.change_and_refresh(changes)
    finally:
        history.teardown()


def test_a_new_row_is_not_taken_for_one_of_another_table_that_had_its_number_before():
    history = begun()
    try:
        foreign = history.foreign_rows(1, False)
        number = history.table.current_snapshot().sequence_number
        history.rows.append(foreign, {30: (31, number + 3)})
        history.refresh()
        gone = history.rows.files()[-1:]
        history.rows.update(gone, builds.rows([]))
        history.append(1)
        assert history.rows.lineage[31] == (31, number + 3)
        history.rows.compact(
            history.rows.files()[-1:], history.rows.rows_of(history.rows.files()[-1:])
        )
        history.refresh()
    finally:
        history.teardown()


def test_two_rows_of_the_id_of_one_without_a_vector_are_both_read():
    history = begun()
    try:
        history.append_equals([1])
        history.refresh()
        assert history.table.scan().to_arrow().column("embedding").null_count == 1
        ids = history.rows.rows_of(history.rows.files()).column("id").to_pylist()
        history.compact_with_an_id_twice(EVERY, ids.index(31), 0)
    finally:
        history.teardown()


def test_updates_that_delete_by_position_and_new_rows_leave_a_compaction_believed():
    history = begun()
    try:
        known = DONE["indexed"]
        history.update_merge_on_read([0, 7, 15], 0)
        history.append(5)
        history.compact(EVERY, 1)
        history.refresh()
        assert DONE["indexed"] - known == 30 - len({0, 7, 15})
    finally:
        history.teardown()


def test_updates_of_words_that_delete_by_position_have_no_vector_built_anew():
    history = begun("vamana", ("id", "word"))
    try:
        before, types = blob_digests(history.table), set()
        for picks in ([0], [7, 15], [1, 8, 2, 9]):
            history.update_words_merge_on_read(picks)
            done = history.refresh()
            assert (done["rows_added"], done["rows_gone"]) == (0, 0)
            now = blob_digests(history.table)
            assert now[graph.TYPE] == before[graph.TYPE]
            types |= now.keys()
        assert column_changes.TYPE in types
    finally:
        history.teardown()


def test_no_row_is_taken_for_another():
    run_state_machine_as_test(
        RowIdHistory,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=6,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert DONE["refreshes"] > 0
    assert DONE["indexed"] > 0
