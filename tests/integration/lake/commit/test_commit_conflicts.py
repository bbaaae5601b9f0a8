"""A table that others change between the plan and the commit."""

import threading
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from puffin_ann.errors import (
    ConflictError,
)
from puffin_ann.lake.commit.attempt import Published
from tests.support.lake import tables
from tests.support.lifecycle.commits import (
    head,
    is_published,
    manifest_lists,
    other_handle,
    race,
    send,
)


@pytest.mark.parametrize("change", ["append", "overwrite", "delete"])
def test_a_moved_head_is_a_conflict_and_nothing_is_published(table: Table, change: str) -> None:
    planned = head(table)
    if change == "append":
        table.append(tables.rows(30, 1))
    elif change == "overwrite":
        table.overwrite(tables.rows(0, 30))
    else:
        table.delete("id = 3")
    snapshots = len(table.refresh().snapshots())
    with pytest.raises(ConflictError, match=f"not at {planned}"):
        send(table, expected=planned, mode="statistics")
    table.refresh()
    assert len(table.snapshots()) == snapshots
    assert not any("run-1" in entry.statistics_path for entry in table.metadata.statistics)


def moved(table: Table, change: str) -> None:
    if change == "append":
        table.append(tables.rows(30, 2))
    elif change == "overwrite":
        table.overwrite(tables.rows(0, 30))
    else:
        send(table, run="another", mode="statistics")


@pytest.mark.parametrize("change", ["append", "overwrite", "publish"])
def test_a_head_that_moves_at_the_last_moment_is_a_conflict(
    faulty: Table, tmp_path: Path, change: str
) -> None:
    race(faulty, tmp_path, lambda table: moved(table, change))
    with pytest.raises(ConflictError):
        send(faulty, mode="statistics")
    faulty.refresh()
    assert not any("run-1" in entry.statistics_path for entry in faulty.metadata.statistics)


@pytest.mark.parametrize("change", ["append", "overwrite", "publish"])
def test_under_a_tag_it_is_none(faulty: Table, tmp_path: Path, change: str) -> None:
    race(faulty, tmp_path, lambda table: moved(table, change))
    assert is_published(faulty, send(faulty))
    lists = {str(path) for path in manifest_lists(tmp_path)}
    named = {snapshot.manifest_list.removeprefix("file://") for snapshot in faulty.snapshots()}
    assert lists == named, "the manifest list is removed after a definite refusal"


def test_a_change_beside_the_head_does_not_stop_publishing(faulty: Table, tmp_path: Path) -> None:
    # The SQL catalog swaps one pointer, so a property set by others makes it refuse us too.
    race(
        faulty,
        tmp_path,
        lambda table: table.transaction().set_properties(a="b").commit_transaction(),
    )

    def refuse_once(commit):
        other_handle(faulty, tmp_path).transaction().set_properties(a="b").commit_transaction()
        raise CommitFailedException("Table has been updated by another process")

    faulty.catalog.faults = [refuse_once]
    published = send(faulty)
    assert not published.already
    assert is_published(faulty, published)
    assert faulty.properties["a"] == "b"


def test_a_commit_to_another_branch_gives_a_later_sequence_number(
    faulty: Table, tmp_path: Path
) -> None:
    with faulty.manage_snapshots() as snapshots:
        snapshots.create_branch(head(faulty), "audit")

    def refuse_once(commit):
        other_handle(faulty, tmp_path).append(tables.rows(90, 1), branch="audit")
        return commit()

    faulty.refresh()
    faulty.catalog.faults = [refuse_once]
    published = send(faulty)
    assert published.sequence_number == 3
    assert tables.live_ids(faulty.refresh()) == list(range(30))


def test_a_dropped_table_is_a_conflict(table: Table, catalog: SqlCatalog) -> None:
    planned = head(table)
    catalog.drop_table(table.name())
    with pytest.raises(ConflictError, match="dropped"):
        send(table, expected=planned)


def test_two_writers_in_a_race_publish_one_after_the_other_or_not_at_all(
    table: Table, tmp_path: Path
) -> None:
    """Both want the place of one snapshot: exactly one is published, the other is refused."""
    for number in range(5):
        table.refresh().append(tables.rows(100 + number, 1))
        planned = head(table)
        outcomes: dict[str, object] = {}
        barrier = threading.Barrier(2)

        def run(name: str, planned=planned, outcomes=outcomes, barrier=barrier) -> None:
            mine = other_handle(table, tmp_path)
            barrier.wait()
            try:
                outcomes[name] = send(mine, run=name, expected=planned, mode="statistics")
            except ConflictError as error:
                outcomes[name] = error

        threads = [threading.Thread(target=run, args=(f"{number}-{name}",)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        won = [outcome for outcome in outcomes.values() if isinstance(outcome, Published)]
        assert len(won) == 1, outcomes
        assert head(table) == won[0].snapshot_id == planned
