"""The difference by differing manifests, over manifests that Iceberg's own code wrote."""

import pytest
from pyiceberg.table import Table
from pyroaring import BitMap

from puffin_ann.lake.read.deletes.row_deletes import deleted_positions
from puffin_ann.lake.read.diff.coverage_diff import Covered, CoveredColumns, difference
from puffin_ann.lake.read.diff.manifest_diff import changes
from puffin_ann.lake.read.files.live_files import live_files, load_manifest_list
from tests.support.lake.spark_changes import MERGE_ON_READ, REWRITES, ROW_CHANGES
from tests.support.lifecycle import builds

pytestmark = pytest.mark.slow

EXPIRE = (
    "CALL {c}.system.expire_snapshots(table => '{n}', "
    "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 4)"
)


def base_at(table: Table, snapshot_id: int) -> tuple[CoveredColumns, list[str]]:
    """What an index built on a snapshot would cover, and the snapshot's manifests."""
    files = live_files(table, snapshot_id)
    deleted = deleted_positions(table, files)
    covered = [
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
    manifests = table.snapshot_by_id(snapshot_id).manifests(table.io)
    return CoveredColumns.of(covered), [manifest.manifest_path for manifest in manifests]


def told(table: Table, bases: dict[int, tuple[CoveredColumns, list[str]]]) -> set[tuple[int, int]]:
    """Compare every snapshot with every base; give the pairs that differing manifests told."""
    quick = set()
    for snapshot in table.snapshots():
        at = snapshot.snapshot_id
        live = live_files(table, at)
        deleted = deleted_positions(table, live)
        for base, (covered, manifests) in bases.items():
            found = changes(load_manifest_list(table, at), covered, manifests)
            if found is not None:
                assert found == difference(covered, live, deleted), (base, at)
                quick.add((base, at))
    return quick


def created(lake, version: int) -> Table:
    rows = builds.rows(range(30))
    table = lake.create(rows, **MERGE_ON_READ) if version == 2 else lake.create_by_spark(rows)
    for first in (100, 200, 300):
        lake.sql(f"INSERT INTO {{t}} SELECT id + {first}, word, embedding FROM {{t}} WHERE id < 9")
    return table


@pytest.mark.long
@pytest.mark.parametrize(("kind", "version"), [("embedded", 2), ("rest", 3)])
def test_differing_manifests_tell_what_all_of_them_do(request, kind, version):
    lake = request.getfixturevalue(f"{kind}_lake")
    created(lake, version)
    for step in (*ROW_CHANGES, *(REWRITES if version == 2 else REWRITES[1:])):
        lake.sql(step)
    table = lake.load()
    ids = [snapshot.snapshot_id for snapshot in table.snapshots()]
    bases = {at: base_at(table, at) for at in ids[1::3]}
    quick = told(table, bases)
    assert all((at, at) in quick for at in bases)
    assert len(quick) >= len(ids), "of usual commits, differing manifests tell"

    lake.sql(EXPIRE)
    table = lake.load()
    assert len(table.snapshots()) == 4
    told(table, bases)


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.long), 3])
def test_after_an_append_and_a_delete_of_rows_few_manifests_are_read(rest_lake, version):
    table = created(rest_lake, version).refresh()
    before = table.current_snapshot().snapshot_id
    base = base_at(table, before)
    for step in (
        "INSERT INTO {t} SELECT id + 900, word, embedding FROM {t} WHERE id < 3",
        "DELETE FROM {t} WHERE id IN (2, 4)",
        "DELETE FROM {t} WHERE id IN (5, 104)",
    ):
        rest_lake.sql(step)
        table = rest_lake.load()
        at = table.current_snapshot().snapshot_id
        assert (before, at) in told(table, {before: base}), step
        later = base_at(table, at)
        assert (at, at) in told(table, {at: later})
    found = changes(load_manifest_list(table), *base)
    assert (found.scanned_rows, found.masked_rows) == (3, 4)
