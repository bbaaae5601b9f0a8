"""What one publication leaves in the table."""

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.statistics import StatisticsFile

from puffin_ann.errors import (
    StagingError,
    UnsupportedTableError,
)
from puffin_ann.lake.commit.attempt import Published
from puffin_ann.lake.metadata.registered import find_registered
from puffin_ann.lake.read.live_files import live_files
from tests.support import tables
from tests.support.commits import CONTENT, head, put, send


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
    [entry] = find_registered(table.refresh())
    assert entry.snapshot_ids == (published.snapshot_id, base)
    assert entry.snapshot_id == published.snapshot_id
    assert (entry.file_size, entry.footer_size) == (len(CONTENT), 28)
    assert all(not entry.blob_metadata for entry in table.metadata.statistics)


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
    paths = {entry.snapshot_id: entry.statistics_path for entry in table.metadata.statistics}
    assert paths[base] == foreign.statistics_path
    assert paths[published.snapshot_id].endswith("run-1.puffin")


def test_earlier_registrations_stay(table: Table) -> None:
    first = send(table, run="one")
    second = send(table, run="two")
    entries = find_registered(table.refresh())
    assert [entry.snapshot_id for entry in entries] == [second.snapshot_id, first.snapshot_id]


def test_a_base_that_is_not_the_head_is_kept_as_it_was(table: Table) -> None:
    base = head(table)
    table.append(tables.rows(30, 5))
    published = send(table, base_snapshot_id=base)
    [entry] = find_registered(table.refresh())
    assert entry.snapshot_ids == (published.snapshot_id, base)
    assert tables.live_ids(table) == list(range(35))


def test_a_base_that_has_expired_is_not_registered(table: Table) -> None:
    published = send(table, base_snapshot_id=4711)
    [entry] = find_registered(table.refresh())
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
