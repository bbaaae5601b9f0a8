import threading
from pathlib import Path
from typing import ClassVar

import lake_tables as tables
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.statistics import StatisticsFile

from puffin_ann.errors import (
    CatalogUnavailableError,
    ConflictError,
    StagingError,
    UnclearCommitError,
    UnsupportedTableError,
)
from puffin_ann.lake import publish as publishing
from puffin_ann.lake.live import live_files
from puffin_ann.lake.publication import Published
from puffin_ann.lake.publish import publish
from puffin_ann.lake.registration import registered

CONTENT = b"PFA1" + bytes(60)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "WAIT_SECONDS", 0.0)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = tables.create(catalog)
    table.append(tables.rows(0, 25))
    table.append(tables.rows(25, 5))
    return table


def head(table: Table) -> int:
    return table.refresh().current_snapshot().snapshot_id


def put(table: Table, name: str = "index.puffin") -> str:
    path = table.location_provider().new_metadata_location(name)
    with table.io.new_output(path).create(overwrite=True) as out:
        out.write(CONTENT)
    return path


def send(table: Table, *, run: str = "run-1", expected: int | None = None, **changes) -> Published:
    at = head(table) if expected is None else expected
    arguments = {
        "expected_head": at,
        "base_snapshot_id": at,
        "statistics_path": put(table, f"{run}.puffin"),
        "file_size": len(CONTENT),
        "footer_size": 28,
        "summary": {"ann.words.run-id": run, "ann.words.vectors": "30"},
        **changes,
    }
    return publish(table, **arguments)


def test_publishing_is_one_commit_without_data_change(table: Table) -> None:
    base = table.current_snapshot()
    metadata_before = table.metadata_location
    published = send(table)

    table.refresh()
    snapshot = table.current_snapshot()
    assert published == Published(snapshot.snapshot_id, snapshot.sequence_number, False)
    assert table.metadata.metadata_log[-1].metadata_file == metadata_before
    assert snapshot.summary.operation == Operation.REPLACE
    assert snapshot.parent_snapshot_id == base.snapshot_id
    assert snapshot.manifests(table.io) == base.manifests(table.io)
    assert tables.live_ids(table) == list(range(30))


def test_the_summary_says_the_run_the_file_and_the_parents_totals(table: Table) -> None:
    before = table.current_snapshot().summary.additional_properties
    send(table)
    after = table.refresh().current_snapshot().summary.additional_properties
    totals = {key: value for key, value in before.items() if key.startswith("total-")}
    assert totals["total-records"] == "30"
    assert after == {
        **totals,
        "ann.words.run-id": "run-1",
        "ann.words.vectors": "30",
        "statistics-file": table.location_provider().new_metadata_location("run-1.puffin"),
    }


def test_the_file_is_registered_under_index_and_base_snapshot(table: Table) -> None:
    base = head(table)
    published = send(table)
    [entry] = registered(table.refresh())
    assert entry.snapshot_ids == (published.snapshot_id, base)
    assert entry.snapshot_id == published.snapshot_id
    assert (entry.file_size, entry.footer_size) == (len(CONTENT), 28)
    assert all(not one.blob_metadata for one in table.metadata.statistics)


def test_statistics_of_the_base_snapshot_are_left_alone(table: Table) -> None:
    base = head(table)
    foreign = StatisticsFile.model_validate(
        {
            "snapshot-id": base,
            "statistics-path": put(table, "theirs.stats"),
            "file-size-in-bytes": 64,
            "file-footer-size-in-bytes": 28,
            "blob-metadata": [],
        }
    )
    table.update_statistics().set_statistics(foreign).commit()
    published = send(table)
    table.refresh()
    paths = {one.snapshot_id: one.statistics_path for one in table.metadata.statistics}
    assert paths[base] == foreign.statistics_path
    assert paths[published.snapshot_id].endswith("run-1.puffin")


def test_earlier_registrations_stay(table: Table) -> None:
    first = send(table, run="one")
    second = send(table, run="two")
    entries = registered(table.refresh())
    assert [entry.snapshot_id for entry in entries] == [second.snapshot_id, first.snapshot_id]


def test_a_base_that_is_not_the_head_is_kept_as_it_was(table: Table) -> None:
    base = head(table)
    table.append(tables.rows(30, 5))
    published = send(table, base_snapshot_id=base)
    [entry] = registered(table.refresh())
    assert entry.snapshot_ids == (published.snapshot_id, base)
    assert tables.live_ids(table) == list(range(35))


def test_a_base_that_has_expired_is_not_registered(table: Table) -> None:
    published = send(table, base_snapshot_id=4711)
    [entry] = registered(table.refresh())
    assert entry.snapshot_ids == (published.snapshot_id,)


def test_the_table_goes_on_as_before_after_publishing(table: Table, catalog: SqlCatalog) -> None:
    send(table)
    again = catalog.load_table(table.name())
    again.append(tables.rows(100, 3))
    again.delete("id = 100")
    assert tables.live_ids(again) == [*range(30), 101, 102]
    assert again.current_snapshot().summary["total-records"] == "32"


def test_row_level_deletes_are_carried_over(table: Table) -> None:
    tables.delete_positions(table, {file.path: [0] for file in live_files(table)})
    before = live_files(table)
    send(table)
    assert live_files(table.refresh()) == before
    assert tables.live_ids(table) == sorted({*range(30)} - {0, 25})


@pytest.mark.parametrize("change", ["append", "overwrite", "delete", "index"])
def test_a_moved_head_is_a_conflict_and_nothing_is_published(table: Table, change: str) -> None:
    planned = head(table)
    if change == "append":
        table.append(tables.rows(30, 1))
    elif change == "overwrite":
        table.overwrite(tables.rows(0, 30))
    elif change == "delete":
        table.delete("id = 3")
    else:
        send(table, run="other")
    snapshots = len(table.refresh().snapshots())
    with pytest.raises(ConflictError, match=f"not at {planned}"):
        send(table, expected=planned)
    table.refresh()
    assert len(table.snapshots()) == snapshots
    assert not any("run-1" in one.statistics_path for one in table.metadata.statistics)


class Faulty(SqlCatalog):
    """A catalog whose next commits misbehave: each fault is a function that is given the commit."""

    faults: ClassVar[list] = []

    def commit_table(self, table, requirements, updates) -> CommitTableResponse:
        def commit() -> CommitTableResponse:
            return super(Faulty, self).commit_table(table, requirements, updates)

        return self.faults.pop(0)(commit) if self.faults else commit()


def lost_reply(commit):
    commit()
    raise ConnectionError("connection reset after the request")


def lost_request(commit):
    raise ConnectionError("connection reset before the request")


@pytest.fixture
def faulty(table: Table, tmp_path: Path) -> Table:
    catalog = tables.open_catalog(tmp_path, Faulty)
    catalog.faults = []
    return catalog.load_table(table.name())


def other_handle(table: Table, tmp_path: Path) -> Table:
    return tables.open_catalog(tmp_path).load_table(table.name())


def race(table: Table, tmp_path: Path, change) -> None:
    """Change the table by another handle between our look at it and our commit."""

    def fault(commit):
        change(other_handle(table, tmp_path))
        return commit()

    table.catalog.faults = [fault]


@pytest.mark.parametrize("change", ["append", "overwrite", "publish"])
def test_a_head_that_moves_at_the_last_moment_is_a_conflict(
    faulty: Table, tmp_path: Path, change: str
) -> None:
    def move(table: Table) -> None:
        if change == "append":
            table.append(tables.rows(30, 2))
        elif change == "overwrite":
            table.overwrite(tables.rows(0, 30))
        else:
            send(table, run="twin")

    race(faulty, tmp_path, move)
    with pytest.raises(ConflictError):
        send(faulty)
    faulty.refresh()
    assert not any("run-1" in one.statistics_path for one in faulty.metadata.statistics)
    lists = {str(path) for path in manifest_lists(tmp_path)}
    named = {one.manifest_list.removeprefix("file://") for one in faulty.snapshots()}
    assert lists == named, "the manifest list is removed after a definite refusal"


def manifest_lists(folder: Path) -> list[Path]:
    return list((folder / "warehouse").rglob("snap-*.avro"))


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
    assert faulty.refresh().current_snapshot().snapshot_id == published.snapshot_id
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
    assert published.sequence_number == 4
    assert tables.live_ids(faulty.refresh()) == list(range(30))


def test_a_lost_reply_is_found_to_have_published(faulty: Table) -> None:
    faulty.catalog.faults = [lost_reply]
    published = send(faulty)
    assert not published.already
    faulty.refresh()
    assert faulty.current_snapshot().snapshot_id == published.snapshot_id
    assert len(faulty.snapshots()) == 3


def test_a_lost_request_is_sent_again(faulty: Table) -> None:
    faulty.catalog.faults = [lost_request, lost_request]
    published = send(faulty)
    faulty.refresh()
    assert faulty.current_snapshot().snapshot_id == published.snapshot_id
    assert len(faulty.snapshots()) == 3


def test_when_every_request_is_lost_the_outcome_is_unclear(faulty: Table, tmp_path: Path) -> None:
    faulty.catalog.faults = [lost_request] * 10
    before = len(manifest_lists(tmp_path))
    with pytest.raises(UnclearCommitError, match="kept"):
        send(faulty)
    assert len(faulty.refresh().snapshots()) == 2
    # A lost request may still land, so what it names must stay.
    assert len(manifest_lists(tmp_path)) == before + publishing.ATTEMPTS
    assert faulty.io.new_input(
        faulty.location_provider().new_metadata_location("run-1.puffin")
    ).exists()


def test_a_request_that_lands_late_is_published_once(faulty: Table) -> None:
    """The first request is delayed; it lands after we looked, before we send the second."""
    held = []

    def hold(commit):
        held.append(commit)
        raise ConnectionError("timed out")

    def release_first(commit):
        held[0]()
        return commit()

    faulty.catalog.faults = [hold, release_first]
    published = send(faulty)
    faulty.refresh()
    assert faulty.current_snapshot().snapshot_id == published.snapshot_id
    runs = [one.summary["ann.words.run-id"] for one in faulty.snapshots()]
    assert runs.count("run-1") == 1


def test_a_request_that_lands_after_the_second_changes_nothing(faulty: Table) -> None:
    held = []

    def hold(commit):
        held.append(commit)
        raise ConnectionError("timed out")

    faulty.catalog.faults = [hold]
    published = send(faulty)
    with pytest.raises(CommitFailedException):
        held[0]()
    assert faulty.refresh().current_snapshot().snapshot_id == published.snapshot_id


def test_an_unclear_run_learns_its_outcome_when_it_is_run_again(faulty: Table) -> None:
    held = []

    def hold(commit):
        held.append(commit)
        raise ConnectionError("timed out")

    planned = head(faulty)
    faulty.catalog.faults = [hold] * publishing.ATTEMPTS
    with pytest.raises(UnclearCommitError):
        send(faulty, expected=planned)
    held[0]()
    again = send(faulty, expected=planned)
    assert again.already
    assert again.snapshot_id == faulty.refresh().current_snapshot().snapshot_id


def test_a_moved_head_after_a_lost_request_is_not_called_a_conflict(
    faulty: Table, tmp_path: Path
) -> None:
    # "Conflict" would allow to delete the file, which a late request could still register.
    def lose_and_move(commit):
        other_handle(faulty, tmp_path).append(tables.rows(30, 1))
        raise ConnectionError("timed out")

    faulty.catalog.faults = [lose_and_move]
    with pytest.raises(UnclearCommitError):
        send(faulty)


def test_a_run_publishes_once(table: Table) -> None:
    planned = head(table)
    first = send(table)
    again = send(table)
    late = send(table, expected=planned)
    assert again == late == Published(first.snapshot_id, first.sequence_number, True)
    assert len(table.refresh().snapshots()) == 3


def test_a_run_publishes_once_even_if_its_snapshot_has_expired(table: Table) -> None:
    base = head(table)
    published = send(table)
    table.refresh()
    table.append(tables.rows(30, 1))
    table.maintenance.expire_snapshots().by_id(published.snapshot_id).commit()
    table.refresh()
    again = send(table)
    assert again.already
    assert again.snapshot_id == base


def test_a_file_that_is_not_there_is_never_registered(table: Table) -> None:
    with pytest.raises(StagingError, match="missing; nothing"):
        send(table, statistics_path=f"{table.location()}/metadata/none.puffin")
    with pytest.raises(StagingError, match="has 64 bytes"):
        send(table, file_size=65)
    assert len(table.refresh().snapshots()) == 2


def test_a_file_removed_during_the_commit_is_told(faulty: Table) -> None:
    def remove(commit):
        faulty.io.delete(faulty.location_provider().new_metadata_location("run-1.puffin"))
        return commit()

    faulty.catalog.faults = [remove]
    with pytest.raises(UnclearCommitError, match="removed while"):
        send(faulty)


def test_a_refusal_nobody_could_verify_is_unclear(
    faulty: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transport that repeats requests reports a refusal although its first one landed."""

    def land_refuse_and_go_away(commit):
        commit()
        monkeypatch.setattr(faulty.catalog, "load_table", unreachable)
        raise CommitFailedException("head has moved")

    faulty.catalog.faults = [land_refuse_and_go_away]
    with pytest.raises(UnclearCommitError):
        send(faulty)


def test_a_refusal_of_a_repeated_request_is_seen_through(faulty: Table) -> None:
    def land_and_refuse(commit):
        commit()
        raise CommitFailedException("head has moved")

    faulty.catalog.faults = [land_and_refuse]
    published = send(faulty)
    assert not published.already
    assert faulty.refresh().current_snapshot().snapshot_id == published.snapshot_id
    assert tables.live_ids(faulty) == list(range(30))


def unreachable(*_: object) -> Table:
    raise ConnectionError("refused")


def test_version_3_tables_are_refused_by_name(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 5))
    table = tables.as_version_3(table)
    with pytest.raises(UnsupportedTableError, match="version 3"):
        send(table)


def test_a_dropped_table_is_a_conflict(table: Table, catalog: SqlCatalog) -> None:
    planned = head(table)
    catalog.drop_table(table.name())
    with pytest.raises(ConflictError, match="dropped"):
        send(table, expected=planned)


def test_a_catalog_that_does_not_answer_at_first_is_told_apart(
    faulty: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = head(faulty)
    monkeypatch.setattr(faulty.catalog, "load_table", unreachable)
    with pytest.raises(CatalogUnavailableError, match="refused"):
        send(faulty, expected=planned)


def test_a_run_without_id_is_a_mistake_of_the_caller(table: Table) -> None:
    with pytest.raises(ValueError, match="run-id"):
        send(table, summary={"ann.words.vectors": "3"})


def test_two_writers_in_a_race_publish_one_after_the_other_or_not_at_all(
    table: Table, tmp_path: Path
) -> None:
    """Both planned on the same head: exactly one is published, the other is refused."""
    for number in range(5):
        planned = head(table)
        outcomes: dict[str, object] = {}
        barrier = threading.Barrier(2)

        def run(name: str, planned=planned, outcomes=outcomes, barrier=barrier) -> None:
            mine = other_handle(table, tmp_path)
            barrier.wait()
            try:
                outcomes[name] = send(mine, run=name, expected=planned)
            except ConflictError as error:
                outcomes[name] = error

        threads = [threading.Thread(target=run, args=(f"{number}-{name}",)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        won = [one for one in outcomes.values() if isinstance(one, Published)]
        assert len(won) == 1, outcomes
        assert head(table) == won[0].snapshot_id
        assert table.current_snapshot().parent_snapshot_id == planned
