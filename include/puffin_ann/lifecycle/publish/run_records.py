"""What each run did to an index, kept in the index itself: its routing blob's properties.

A version carries the records of the runs before it, so that they last as long as the index does,
however many versions and snapshots expire.
"""

from collections.abc import Iterable
from dataclasses import replace

from pyiceberg.table import Table

from puffin_ann.blobs.version import routing as routing_blob
from puffin_ann.blobs.version.routing import Routing
from puffin_ann.errors import FormatError
from puffin_ann.lake.metadata.dropped import find_dropped, is_dropped
from puffin_ann.lake.metadata.registered import find_registered
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.documents.refresh import RefreshPlan
from puffin_ann.lifecycle.documents.run import BuildPlan, RunPlan
from puffin_ann.lifecycle.documents.run_record import RunAction, RunRecord
from puffin_ann.lifecycle.policy.decision import Decision
from puffin_ann.lifecycle.policy.undone import Undone
from puffin_ann.search.version.index_files import open_puffin
from puffin_ann.search.version.index_version import IndexVersion, version_id

KEPT = 100
"""Most records that a version carries."""


def recorded(
    table: Table,
    plan: RunPlan,
    version: IndexVersion,
    *,
    written: int,
    copied: int,
    rows_added: int,
    rows_gone: int,
) -> Routing:
    """Return a version's routing with the record of its run, before those of the newest version.

    Args:
        table: as it is published into.
        plan: of the run.
        version: as it was staged, or as it is made of a published one, by whose path it goes.
        written: new bytes of its shards; all that the run wrote is known once it is published.
        copied: bytes carried over.
        rows_added: rows that the version before did not have, or all.
        rows_gone: rows of the version before that are not live any more.
    """
    base = plan.base_run_id if isinstance(plan, RefreshPlan) else ""
    before = [
        as_published(record, version) if record.run_id == base else record
        for record in newest_properties(table, version.index, known=version).history
    ]
    mine = _record(plan, version).model_copy(
        update={
            "rows_added": rows_added,
            "rows_gone": rows_gone,
            "bytes_written": written,
            "bytes_copied": copied,
        }
    )
    routing = version.routing
    noted = IndexProperties(routing.properties).noting(history=with_record(mine, before))
    return replace(routing, properties=noted.texts)


def with_record(mine: RunRecord, before: Iterable[RunRecord]) -> tuple[RunRecord, ...]:
    """Return the records that a version carries: one, and those before it."""
    return (mine, *(record for record in before if record.run_id != mine.run_id))[:KEPT]


def as_published(record: RunRecord, version: IndexVersion) -> RunRecord:
    """Return the record of a version's run with all that this wrote, footer and routing included.

    A version has the record from before these were written. Its file tells how long they are,
    unless that was put together later of what is published.

    Args:
        record: of the run that published the version.
        version: the version; what counts is where its file is, and how long.
    """
    name = version.path.rpartition("/")[2]
    if not record.bytes_written or not name.startswith(f"ann-{version.index}-"):
        return record
    written = max(record.bytes_written, version.length - record.bytes_copied)
    return record.model_copy(update={"bytes_written": written})


def _record(plan: RunPlan, version: IndexVersion) -> RunRecord:
    decision = plan.decision if isinstance(plan, RefreshPlan) else None
    reason = plan.reason if isinstance(plan, BuildPlan) else ""
    routing = version.routing
    undone = undone_by(plan, version)
    return RunRecord(
        run_id=plan.run_id,
        action=name_action(decision, undone),
        at_ms=plan.planned_ms,
        reason=with_undone(decision.reason, undone) if decision else reason,
        base_snapshot_id=plan.base_snapshot_id,
        rows=version.vectors,
        seconds=round(sum(IndexProperties(routing.properties).stage_seconds.values()), 3),
        recall=routing.measured.recall if routing.measured and decision is None else None,
    )


def undone_by(plan: RunPlan, version: IndexVersion) -> Undone:
    """Return what a run itself was to do to shards and left; nothing that one before it did."""
    undone = IndexProperties(version.routing.properties).undone
    return undone if undone.run_id == plan.run_id else Undone()


def with_undone(reason: str, undone: Undone) -> str:
    """Add to why a run did what it did what it left undone."""
    return f"{reason}; left undone, since {undone.reason}" if undone.is_any else reason


def name_action(decision: Decision | None, undone: Undone) -> RunAction:
    """Say what a run did, by what was decided and is not undone; a build decides nothing."""
    if decision is None:
        return "build"
    done = [
        shard.action
        for shard in decision.shards
        if shard.kind == "graph"
        and shard.action in ("merge", "rebuild")
        and shard.shard_id not in undone.refused
    ]
    if decision.merges and (done or not undone.is_any):
        return "merge"
    return "rebuild" if "rebuild" in done else "refresh"


def newest_properties(
    table: Table, index: str, known: IndexVersion | None = None
) -> IndexProperties:
    """Return what is noted in the newest version; nothing if there is none.

    Args:
        table: as it was loaded.
        index: name of the index.
        known: a version with the properties of the published file it names, which is not read then.

    Raises:
        StoreUnavailableError: of a file its store does not say what it is.
    """
    marks = find_dropped(table)
    for entry in find_registered(table):
        if known is not None and entry.path == known.path:
            return IndexProperties(known.routing.properties)
        try:
            with open_puffin(table.io, entry.path, entry.file_size) as reader:
                for blob in reader.find(routing_blob.TYPE, index=index):
                    routing = routing_blob.decode(reader.read(blob))
                    if not is_dropped(marks, index, version_id(routing, blob.snapshot_id)):
                        return IndexProperties(routing.properties)
        except (FormatError, FileNotFoundError):
            continue  # its history is lost with it
    return IndexProperties()
