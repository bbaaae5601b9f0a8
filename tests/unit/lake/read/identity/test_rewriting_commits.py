"""Which commits moved rows, and changed none."""

from types import SimpleNamespace

from pyiceberg.table.snapshots import Operation, Summary

from puffin_ann.lake.read.identity.rewriting_commits import (
    commits_since,
    entries_beside,
    may_move_imported_rows,
    numbers_of_rewrites,
)


def snapshot(
    number: int, parent: int | None, operation: Operation, **summary: str
) -> SimpleNamespace:
    return SimpleNamespace(
        snapshot_id=100 + number,
        parent_snapshot_id=None if parent is None else 100 + parent,
        sequence_number=number,
        summary=Summary(operation, **summary),
    )


def table_of(*snapshots: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(
        snapshot_by_id={one.snapshot_id: one for one in snapshots}.get, name=lambda: ("demo", "t")
    )


FIRST = snapshot(1, None, Operation.APPEND)
OVERWRITE = snapshot(2, 1, Operation.OVERWRITE)
REWRITE = snapshot(3, 2, Operation.REPLACE)
INDEX = snapshot(4, 3, Operation.REPLACE, **{"puffin-ann.tag": "puffin_ann_words_1"})
DELETE = snapshot(5, 4, Operation.DELETE)
LAST = snapshot(6, 5, Operation.REPLACE)
APART = snapshot(7, 1, Operation.REPLACE)
EVERY = (FIRST, OVERWRITE, REWRITE, INDEX, DELETE, LAST, APART)


def test_commits_between_two_snapshots_are_found_without_those_of_index_files() -> None:
    assert commits_since(table_of(*EVERY), 101, 106) == [LAST, DELETE, REWRITE, OVERWRITE]
    assert commits_since(table_of(*EVERY), 106, 106) == []


def test_a_history_that_forked_or_has_a_gap_is_not_known() -> None:
    assert commits_since(table_of(*EVERY), 102, 107) is None
    assert commits_since(table_of(*EVERY), 106, 105) is None
    without = [one for one in EVERY if one is not REWRITE]
    assert commits_since(table_of(*without), 101, 106) is None


def test_only_a_replace_moves_rows_and_changes_none() -> None:
    assert numbers_of_rewrites([LAST, DELETE, REWRITE, OVERWRITE, FIRST]) == {6, 3}
    assert not numbers_of_rewrites([SimpleNamespace(sequence_number=8, summary=None)])


def test_rows_of_the_snapshot_before_were_not_imported_since() -> None:
    table = table_of(*EVERY)
    assert not may_move_imported_rows(table, 102, [REWRITE], ())
    assert may_move_imported_rows(table, 101, [REWRITE, OVERWRITE], ())  # nothing can be read
    assert may_move_imported_rows(table, 99, [REWRITE], ())


def test_a_snapshot_that_was_expired_tells_of_no_files() -> None:
    assert entries_beside(table_of(), 5, ()) is None
