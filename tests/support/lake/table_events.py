"""What befalls a table and its index, and how it is seen that the index lives."""

import uuid

import numpy as np
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from puffin_ann import open_index
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.metadata.registered import publication_number
from puffin_ann.lake.store.listing import list_objects
from puffin_ann.lifecycle.versions.inventory import is_index_name
from puffin_ann.puffin.writer import PuffinWriter
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(3).normal(size=(4, builds.DIMENSION)).astype(np.float32)
HOUR_MS = 3_600_000
THETA = "apache-datasketches-theta-v1"


def publish(table: Table, run: str, **declared) -> str:
    """Build and publish; returns the location of the file."""
    plan = builds.build(builds.declaration(**declared), run, {"force": True})
    assert plan.action == "build"
    table.refresh()
    return newest(table)


def newest(table: Table) -> str:
    entries = slots(table.refresh())
    order = {snapshot.snapshot_id: snapshot.sequence_number for snapshot in table.snapshots()}
    latest = max(
        entries,
        key=lambda snapshot_id: (
            publication_number(entries[snapshot_id].statistics_path),
            order.get(snapshot_id, -1),
        ),
    )
    return entries[latest].statistics_path


def analyse(table: Table, snapshot_id: int | None = None) -> str:
    """Somebody else's statistics take a snapshot's slot, as ANALYZE does."""
    snapshot_id = snapshot_id or table.refresh().current_snapshot().snapshot_id
    path = f"{table.location()}/metadata/{snapshot_id}-{uuid.uuid4()}.stats"
    with table.io.new_output(path).create() as out, PuffinWriter(out) as writer:
        writer.add(
            THETA,
            b"sketch",
            fields=[1],
            snapshot_id=snapshot_id,
            sequence_number=1,
            properties={"ndv": "42"},
        )
        finished = writer.finish({"created-by": "somebody else"})
    blob = {
        "type": THETA,
        "snapshot-id": snapshot_id,
        "sequence-number": 1,
        "fields": [1],
        "properties": {"ndv": "42"},
    }
    entry = StatisticsFile.model_validate(
        {
            "snapshot-id": snapshot_id,
            "statistics-path": path,
            "file-size-in-bytes": finished.length,
            "file-footer-size-in-bytes": finished.footer_size,
            "blob-metadata": [blob],
        }
    )
    table.update_statistics().set_statistics(entry).commit()
    table.refresh()
    return path


def drop_registration(table: Table, snapshot_id: int) -> None:
    table.update_statistics().remove_statistics(snapshot_id).commit()
    table.refresh()


def expire_all_but_head(table: Table) -> None:
    """Expire as strictly as can be, and delete what no registration names, as Spark does."""
    head = table.refresh().current_snapshot().snapshot_id
    before = {entry.statistics_path for entry in table.metadata.statistics}
    named = {ref.snapshot_id for ref in table.refs().values()}
    others = [
        snapshot.snapshot_id
        for snapshot in table.snapshots()
        if snapshot.snapshot_id not in {head, *named}
    ]
    if others:
        table.maintenance.expire_snapshots().by_ids(others).commit()
    table.refresh()
    for path in before - {entry.statistics_path for entry in table.metadata.statistics}:
        if table.io.new_input(path).exists():
            table.io.delete(path)


def index_files(table: Table) -> set[str]:
    folder = f"{table.location()}/metadata"
    return {
        list_stored_object.uri
        for list_stored_object in list_objects(table.io, folder)
        if is_index_name(list_stored_object.uri)
    }


def assert_alive(table: Table, *names: str) -> None:
    """Every index answers the head exactly as brute force does."""
    table.refresh()
    for name in names or (builds.INDEX,):
        index = open_index(table, name)
        head = table.current_snapshot().snapshot_id
        builds.assert_answers(index, table, head, QUERIES, 5)
