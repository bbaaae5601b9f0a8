"""What one publication leaves in the table."""

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from puffin_ann.errors import (
    ConflictError,
    StagingError,
    UnsupportedTableError,
)
from puffin_ann.lake.commit.attempt import Published
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lake.metadata.registered import find_registered
from puffin_ann.lake.read.files.live_files import live_files
from tests.support.lake import tables
from tests.support.lifecycle.commits import CONTENT, head, put, send


def test_publishing_is_one_commit_that_leaves_main_as_it_is(table: Table) -> None:
    base = table.current_snapshot()
    metadata_before = table.metadata_location
    published = send(table)

    table.refresh()
    snapshot = table.snapshot_by_id(published.snapshot_id)
    assert published == Published(snapshot.snapshot_id, snapshot.sequence_number, False)
    assert own_tags(table) == {snapshot.snapshot_id: "puffin_ann_words_run_1"}
    assert table.metadata.metadata_log[-1].metadata_file == metadata_before
    assert table.current_snapshot() == base
    assert (snapshot.parent_snapshot_id, snapshot.manifests(table.io)) == (None, [])
    assert tables.live_ids(table) == list(range(30))


def test_the_summary_says_the_run_the_file_and_the_tag(table: Table) -> None:
    published = send(table)
    snapshot = table.refresh().snapshot_by_id(published.snapshot_id)
    after = snapshot.summary.additional_properties
    assert {key: value for key, value in after.items() if not key.startswith("total-")} == {
        "ann.words.run-id": "run-1",
        "ann.words.vectors": "30",
        "statistics-file": table.location_provider().new_metadata_location("run-1.puffin"),
        "puffin-ann.tag": "puffin_ann_words_run_1",
    }


def test_the_file_is_registered_under_the_tagged_snapshot_alone(table: Table) -> None:
    published = send(table)
    [entry] = find_registered(table.refresh())
    assert entry.snapshot_ids == (published.snapshot_id,)
    assert (entry.file_size, entry.footer_size) == (len(CONTENT), 28)
    assert all(not entry.blob_metadata for entry in table.metadata.statistics)


def test_by_statistics_the_file_is_registered_under_its_base_alone(table: Table) -> None:
    base, snapshots = head(table), len(table.snapshots())
    table.append(tables.rows(30, 5))
    published = send(table, base_snapshot_id=base, mode="statistics")
    [entry] = find_registered(table.refresh())
    assert (published.snapshot_id, entry.snapshot_ids) == (base, (base,))
    assert (len(table.snapshots()), own_tags(table)) == (snapshots + 1, {})
    assert tables.live_ids(table) == list(range(35))


def foreign_entry(table: Table) -> StatisticsFile:
    """Statistics of others, registered under the head."""
    foreign = StatisticsFile.model_validate(
        {
            "snapshot-id": head(table),
            "statistics-path": put(table, "theirs.stats"),
            "file-size-in-bytes": 64,
            "file-footer-size-in-bytes": 28,
            "blob-metadata": [],
        }
    )
    table.update_statistics().set_statistics(foreign).commit()
    return foreign


def test_statistics_of_others_are_left_alone(table: Table) -> None:
    base, foreign = head(table), foreign_entry(table)
    published = send(table)
    table.refresh()
    paths = {entry.snapshot_id: entry.statistics_path for entry in table.metadata.statistics}
    assert paths[base] == foreign.statistics_path
    assert paths[published.snapshot_id].endswith("run-1.puffin")


def test_by_statistics_a_file_takes_the_place_of_one_that_it_carries_and_of_no_other(
    table: Table,
) -> None:
    base, foreign = head(table), foreign_entry(table)
    with pytest.raises(ConflictError, match="are not carried along; nothing was published"):
        send(table, mode="statistics")
    send(table, mode="statistics", carried={foreign.statistics_path})
    [entry] = find_registered(table.refresh())
    assert (entry.snapshot_id, entry.path.endswith("run-1.puffin")) == (base, True)


def test_earlier_registrations_stay(table: Table) -> None:
    sent = {send(table, run=run).snapshot_id for run in ("one", "two")}
    assert {entry.snapshot_id for entry in find_registered(table.refresh())} == sent


def test_by_statistics_a_base_that_has_expired_is_a_conflict(table: Table) -> None:
    with pytest.raises(ConflictError, match="has expired; nothing was published"):
        send(table, base_snapshot_id=4711, mode="statistics")
    assert send(table, base_snapshot_id=4711).snapshot_id in own_tags(table.refresh())


def test_the_table_goes_on_as_before_after_publishing(table: Table, catalog: SqlCatalog) -> None:
    send(table)
    again = catalog.load_table(table.name())
    again.append(tables.rows(100, 3))
    again.delete("id = 100")
    assert tables.live_ids(again) == [*range(30), 101, 102]
    assert again.current_snapshot().summary["total-records"] == "32"


@pytest.mark.parametrize("mode", ["tag", "statistics"])
def test_row_level_deletes_stay(table: Table, mode: str) -> None:
    tables.delete_positions(table, {file.path: [0] for file in live_files(table)})
    before = live_files(table)
    send(table, mode=mode)
    assert live_files(table.refresh()) == before
    assert tables.live_ids(table) == sorted({*range(30)} - {0, 25})


@pytest.mark.parametrize("mode", ["tag", "statistics"])
def test_a_run_publishes_once(table: Table, mode: str) -> None:
    planned = head(table)
    first = send(table, mode=mode)
    table.append(tables.rows(30, 1))
    again = send(table, mode=mode)
    late = send(table, expected=planned, mode=mode)
    assert again == late == Published(first.snapshot_id, first.sequence_number, True)
    assert len(table.refresh().metadata.statistics) == 1


def test_a_file_that_is_not_there_is_never_registered(table: Table) -> None:
    with pytest.raises(StagingError, match="missing; nothing"):
        send(table, path=f"{table.location()}/metadata/none.puffin")
    with pytest.raises(StagingError, match="has 64 bytes"):
        send(table, file_size=65)
    assert len(table.refresh().snapshots()) == 2


def test_version_3_tables_are_refused_by_name(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    table.append(tables.rows(0, 5))
    table = tables.as_version_3(table)
    with pytest.raises(UnsupportedTableError, match="version 3"):
        send(table)


def test_a_run_without_id_is_a_mistake_of_the_caller(table: Table) -> None:
    with pytest.raises(ValueError, match="run-id"):
        send(table, summary={"ann.words.vectors": "3"})
