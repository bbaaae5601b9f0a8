"""Every snapshot of an eventful table, seen from every other: the difference against PyIceberg."""

from itertools import product

import numpy as np
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyroaring import BitMap

from puffin_ann.lake.read.data.parquet import open_file, read_vectors
from puffin_ann.lake.read.data.vector_column import VectorColumn, table_vector_column
from puffin_ann.lake.read.deletes.row_deletes import deleted_positions
from puffin_ann.lake.read.diff.coverage_diff import (
    ALL,
    Covered,
    CoveredColumns,
    Difference,
    Positions,
    difference,
)
from puffin_ann.lake.read.diff.manifest_diff import changes
from puffin_ann.lake.read.files.live_files import LiveFile, live_files, load_manifest_list
from puffin_ann.lake.read.files.manifests import read_manifest
from tests.support.indexes.former_modes import commit_index_snapshot
from tests.support.lake import tables


def covered(table: Table, snapshot_id: int) -> list[Covered]:
    """What an index built on a snapshot would cover."""
    files = live_files(table, snapshot_id)
    deleted = deleted_positions(table, files)
    return [
        Covered(
            number,
            file.path,
            file.size,
            file.sequence_number,
            file.rows,
            deleted.get(file.path, BitMap()),
        )
        for number, file in enumerate(files)
    ]


class Rows:
    """Ids of single rows of data files, read once."""

    def __init__(self, table: Table, column: VectorColumn) -> None:
        self._table, self._column = table, column
        self._ids: dict[str, np.ndarray] = {}

    def ids(self, path: str, positions: Positions, but: BitMap | None = None) -> list[int]:
        if path not in self._ids:
            io = self._table.io
            with open_file(io, path) as parquet:
                groups = range(parquet.num_row_groups)
                parts = [read_vectors(io, path, i, self._column).matrix for i in groups]
            self._ids[path] = np.concatenate(parts)[:, 0].astype(int)
        ids = self._ids[path]
        places = range(len(ids)) if positions is ALL else positions
        return [int(ids[at]) for at in places if at not in (but or ())]


def answered_and_scanned(table: Table, rows: Rows, base: int, at: int) -> list[int]:
    """Ids that a search at one snapshot sees through an index built on another."""
    known = covered(table, base)
    live = live_files(table, at)
    found = difference(known, live, deleted_positions(table, live))
    seen: list[int] = []
    for file in known:
        masked = found.masked.get(file.file_id, BitMap())
        if masked is not ALL:
            seen += rows.ids(file.path, ALL, file.deleted | masked)
    assert len(seen) == found.covered_rows
    for file, positions in found.scanned:
        deleted = BitMap()
        if positions is ALL:
            deleted = deleted_positions(table, [file]).get(file.path, BitMap())
            assert not deleted, "a file with deleted rows is not to be scanned whole"
        seen += rows.ids(file.path, positions, deleted)
    assert len(seen) == found.live_rows
    return sorted(seen)


def rollback(table: Table, snapshot_id: int) -> None:
    tx = table.transaction()
    tx._apply((SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id),), ())
    tx.commit_transaction()


def publish_index(table: Table, run: str) -> None:
    """As it was done once: a snapshot between others that changes no data."""
    commit_index_snapshot(table, {"ann.words.run-id": run})
    table.refresh()


def newest(table: Table) -> LiveFile:
    return max(live_files(table), key=lambda file: file.sequence_number)


@pytest.fixture
def eventful(catalog: SqlCatalog) -> Table:
    table = tables.create(catalog)
    table.append(tables.rows(0, 25))
    table.append(tables.rows(25, 25))
    tables.delete_positions(table, {newest(table).path: [0, 5]})
    table.delete("id >= 8 and id < 12")  # copy on write: the other rows reappear elsewhere
    publish_index(table, "one")
    middle = table.current_snapshot().snapshot_id
    table.append(tables.rows(50, 10))
    tables.delete_positions(table, {file.path: [1, 2] for file in live_files(table)})
    with table.update_schema() as update:
        update.rename_column("embedding", "vec")
    table.overwrite(tables.rows(200, 12).rename_columns(["id", "word", "vec"]))
    rollback(table, middle)
    with table.manage_snapshots() as snapshots:
        snapshots.create_branch(middle, "audit").create_tag(middle, "kept")
    table.append(tables.rows(300, 4).rename_columns(["id", "word", "vec"]), branch="audit")
    table.delete("id = 30")
    publish_index(table, "two")
    table.append(tables.rows(400, 6).rename_columns(["id", "word", "vec"]))
    return table.refresh()


def test_any_snapshot_is_right_through_an_index_of_any_other(eventful: Table) -> None:
    rows = Rows(eventful, table_vector_column(eventful, "vec"))
    ids = [snapshot.snapshot_id for snapshot in eventful.snapshots()]
    assert len(ids) >= 12
    truth = {at: tables.live_ids(eventful, at) for at in ids}
    for base, at in product(ids, ids):
        assert answered_and_scanned(eventful, rows, base, at) == truth[at], (base, at)


def test_manifests_that_differ_tell_what_all_of_them_do(eventful: Table) -> None:
    ids = [snapshot.snapshot_id for snapshot in eventful.snapshots()]
    quick = 0
    for base, at in product(ids, ids):
        known = covered(eventful, base)
        manifests = eventful.snapshot_by_id(base).manifests(eventful.io)
        found = changes(
            load_manifest_list(eventful, at),
            CoveredColumns.of(known),
            [manifest.manifest_path for manifest in manifests],
        )
        live = live_files(eventful, at)
        assert found in (None, difference(known, live, deleted_positions(eventful, live)))
        quick += found is not None
    # Rolling back, and from an index to before its rows were deleted, all are read.
    assert quick >= len(ids) ** 2 // 2


def test_few_manifests_are_read_where_few_differ(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.create(catalog)
    for first in range(0, 50, 10):
        table.append(tables.rows(first, 10))
    base = table.current_snapshot()
    known = CoveredColumns.of(covered(table, base.snapshot_id))
    manifests = [manifest.manifest_path for manifest in base.manifests(table.io)]
    read: list[str] = []
    monkeypatch.setattr(
        "puffin_ann.lake.read.files.live_files.read_manifest",
        lambda io, manifest: read.append(manifest.path) or read_manifest(io, manifest),
    )
    assert changes(load_manifest_list(table), known, manifests) == Difference({}, [], 50, 50, 0)
    assert read == []

    table.append(tables.rows(50, 5))
    tables.delete_positions(table, {known.paths[0]: [3, 4]})
    found = changes(load_manifest_list(table), known, manifests)
    assert found.masked == {0: BitMap([3, 4])}
    assert [(file.rows, positions) for file, positions in found.scanned] == [(5, ALL)]
    assert (found.live_rows, found.covered_rows, len(read)) == (53, 48, 2)


def test_manifests_of_an_expired_base_are_done_without(catalog: SqlCatalog) -> None:
    table = tables.create(catalog)
    for first in range(0, 50, 10):
        table.append(tables.rows(first, 10))
    base = table.current_snapshot()
    known = CoveredColumns.of(covered(table, base.snapshot_id))
    manifests = [manifest.manifest_path for manifest in base.manifests(table.io)]
    table.delete("id >= 8 and id < 12")
    now = {manifest.manifest_path for manifest in table.current_snapshot().manifests(table.io)}
    at = load_manifest_list(table)
    assert changes(at, known, manifests).masked_rows == 20, "two files were written anew"
    for path in set(manifests) - now:
        table.io.delete(path)
    assert changes(at, known, manifests) is None


def test_branches_and_tags_are_snapshots_like_any_other(eventful: Table) -> None:
    rows = Rows(eventful, table_vector_column(eventful, "vec"))
    base = eventful.current_snapshot().snapshot_id
    for name in ("audit", "kept"):
        at = eventful.snapshot_by_name(name).snapshot_id
        assert answered_and_scanned(eventful, rows, base, at) == tables.live_ids(eventful, at)


def test_what_was_covered_is_told_after_its_snapshot_has_expired(eventful: Table) -> None:
    current = eventful.current_snapshot()
    parent = eventful.snapshot_by_id(current.parent_snapshot_id)
    known = covered(eventful, parent.snapshot_id)
    eventful.maintenance.expire_snapshots().by_id(parent.snapshot_id).commit()
    eventful.refresh()
    live = live_files(eventful)
    found = difference(known, live, deleted_positions(eventful, live))
    assert [file.rows for file, _ in found.scanned] == [6]
    assert found.masked == {}


def test_publishing_leaves_nothing_to_mask_or_scan(eventful: Table) -> None:
    known = covered(eventful, eventful.current_snapshot().snapshot_id)
    publish_index(eventful, "three")
    live = live_files(eventful)
    found = difference(known, live, deleted_positions(eventful, live))
    assert (found.masked, found.scanned, found.coverage) == ({}, [], 1.0)
