"""What each run did to an index, kept in the index itself: its routing blob's properties.

A version carries the records of the runs before it, so that they last as long as the index does,
however many versions and snapshots expire.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, FiniteFloat, TypeAdapter
from pyiceberg.table import Table

from puffin_ann.blobs import routing as routing_blob
from puffin_ann.blobs.routing import Routing
from puffin_ann.errors import FormatError
from puffin_ann.lake.metadata.dropped import find_dropped, is_dropped
from puffin_ann.lake.metadata.registered import find_registered
from puffin_ann.lifecycle.documents.index_properties import HISTORY, read_property, stage_seconds
from puffin_ann.lifecycle.documents.run import RunPlan
from puffin_ann.lifecycle.policy.decision import Decision
from puffin_ann.moments import Moment
from puffin_ann.search.versions import IndexVersion, open_puffin, version_id

KEPT = 100
"""Most records that a version carries."""

Deed = Literal["build", "refresh", "merge", "rebuild", "rename", "evaluate", "published"]
"""What a run did: a refresh that merges deltas or rebuilds shards is called by that."""


class RunRecord(BaseModel):
    """What one run did.

    Attributes:
        run_id: of the run; it says what triggered it.
        at_ms: when it was planned, milliseconds since 1970.
        reason: why it did what it did, in one sentence.
        base_snapshot_id: snapshot whose rows it covers.
        rows: live rows indexed.
        rows_added: rows that the version before did not have, or all.
        rows_gone: rows of the version before that are not live any more.
        bytes_written: new bytes of the index's blobs, but for routing, partitions and coverage.
        bytes_copied: bytes carried over from published files, other indexes' included.
        seconds: of its stages up to publication.
        recall: measured before publication; None if it was not.
        coverage: share of the live rows that it covers; known of evaluations.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    action: Deed
    at_ms: Moment
    reason: str = ""
    base_snapshot_id: int = 0
    rows: int = 0
    rows_added: int = 0
    rows_gone: int = 0
    bytes_written: int = 0
    bytes_copied: int = 0
    seconds: FiniteFloat = 0.0
    recall: FiniteFloat | None = None
    coverage: FiniteFloat | None = None


_RECORDS = TypeAdapter(tuple[RunRecord, ...])


def records_in(properties: Mapping[str, str]) -> tuple[RunRecord, ...]:
    """Return the records that a version carries, the newest first; none if they cannot be read."""
    return read_property(properties, HISTORY, _RECORDS, ())


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
        written: new bytes of its shards.
        copied: bytes carried over.
        rows_added: rows that the version before did not have, or all.
        rows_gone: rows of the version before that are not live any more.
    """
    before = records_in(newest_properties(table, version.index, known=version))
    mine = _record(plan, version).model_copy(
        update={
            "rows_added": rows_added,
            "rows_gone": rows_gone,
            "bytes_written": written,
            "bytes_copied": copied,
        }
    )
    routing = version.routing
    return replace(routing, properties={**routing.properties, HISTORY: with_record(mine, before)})


def with_record(mine: RunRecord, before: Iterable[RunRecord]) -> str:
    """Return the records that a version carries as JSON: one, and those before it."""
    kept = [mine, *(record for record in before if record.run_id != mine.run_id)][:KEPT]
    return json.dumps([record.model_dump(exclude_defaults=True) for record in kept])


def _record(plan: RunPlan, version: IndexVersion) -> RunRecord:
    decision: Decision | None = getattr(plan, "decision", None)
    routing = version.routing
    return RunRecord(
        run_id=plan.run_id,
        action=_deed(decision),
        at_ms=plan.planned_ms,
        reason=decision.reason if decision else getattr(plan, "reason", ""),
        base_snapshot_id=plan.base_snapshot_id,
        rows=version.vectors,
        seconds=round(sum(stage_seconds(routing.properties).values()), 3),
        recall=routing.measured.recall if routing.measured and decision is None else None,
    )


def _deed(decision: Decision | None) -> Deed:
    if decision is None:
        return "build"
    if decision.merges:
        return "merge"
    return "rebuild" if any(shard.action == "rebuild" for shard in decision.shards) else "refresh"


def newest_properties(
    table: Table, index: str, known: IndexVersion | None = None
) -> Mapping[str, str]:
    """Return the routing blob's properties of the newest version; empty if there is none.

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
            return known.routing.properties
        try:
            with open_puffin(table.io, entry.path, entry.file_size) as reader:
                for blob in reader.find(routing_blob.TYPE, index=index):
                    routing = routing_blob.decode(reader.read(blob))
                    if not is_dropped(marks, index, version_id(routing, blob.snapshot_id)):
                        return routing.properties
        except (FormatError, FileNotFoundError):
            continue  # its history is lost with it
    return {}
