"""Every run that is known of an index: what it did, when, what it took, and what is left of it."""

import re
from collections.abc import Iterable, Iterator

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table

from puffin_ann.lake.catalog.tables import load_table, name_of
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.documents.run_record import RunRecord
from puffin_ann.lifecycle.evaluate.records import evaluations
from puffin_ann.lifecycle.publish.run_records import as_published
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import LiveState, live_state, view_of
from puffin_ann.search.version.versions import require_versions

_TRIGGERS = (
    (r"^cli-", "command line"),
    (r"(^|[-_/])manual_", "manual"),
    (r"(^|[-_/])scheduled_", "schedule"),
    (r"(^|[-_/])asset_triggered_", "asset"),
    (r"(^|[-_/])backfill_", "backfill"),
)
"""What run ids tell of their trigger: Airflow begins them with its kind of run."""


class HistoryEntry(BaseModel):
    """One run, and the version it published if that is still there.

    Attributes:
        record: what it did.
        trigger: what started it, as far as its id tells.
        snapshot_id: snapshot under which the version is registered; None if it is not any more.
        file: the file that holds it; empty in the same case.
        coverage: share of the rows live now that a retained version covers, or of those that an
            evaluation searched; None for versions that are gone.
    """

    model_config = ConfigDict(frozen=True)

    record: RunRecord
    trigger: str
    snapshot_id: int | None = None
    file: str = ""
    coverage: float | None = None


class History(BaseModel):
    """What is known of an index, the newest run first."""

    model_config = ConfigDict(frozen=True)

    index: str
    table: str
    entries: tuple[HistoryEntry, ...]

    @property
    def retained(self) -> int:
        """Number of versions that can still be searched."""
        return sum(bool(entry.file) for entry in self.entries)


def history(table: str | Table, index: str) -> History:
    """Return the runs of an index, from what its versions carry, snapshots and evaluations say.

    Raises:
        IndexNotFoundError: no version of it is there.
    """
    loaded = load_table(table)
    versions = require_versions(loaded, index)
    known = {record.run_id: record for record in _records(loaded, index, versions)}
    retained = {version.run_id: version for version in reversed(versions)}
    known |= {run: as_published(known[run], version) for run, version in retained.items()}
    head = loaded.current_snapshot()
    live = live_state(loaded, head.snapshot_id if head else None)
    entries = [
        _entry(loaded, record, retained.get(record.run_id), live) for record in known.values()
    ]
    entries += [_evaluated(evaluation) for evaluation in _evaluations(loaded, index)]
    entries.sort(key=lambda entry: entry.record.at_ms, reverse=True)
    return History(index=index, table=name_of(loaded), entries=tuple(entries))


def trigger_of(run_id: str) -> str:
    """Return what started a run, as far as its id tells."""
    found = (spoken for pattern, spoken in _TRIGGERS if re.search(pattern, run_id))
    return next(found, "unknown")


def _records(table: Table, index: str, versions: Iterable[IndexVersion]) -> Iterator[RunRecord]:
    """Yield records from the least to the best informed, so that later ones take precedence."""
    yield from _of_snapshots(table, index)
    for version in reversed(tuple(versions)):
        yield _of_version(table, version)
        yield from IndexProperties(version.routing.properties).history


def _of_snapshots(table: Table, index: str) -> Iterator[RunRecord]:
    for snapshot in table.snapshots():
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        run = summary.get(f"ann.{index}.run-id")
        if run is not None:
            yield RunRecord(
                run_id=run,
                action="published",
                at_ms=snapshot.timestamp_ms,
                base_snapshot_id=_number(summary.get(f"ann.{index}.base-snapshot-id")),
                rows=_number(summary.get(f"ann.{index}.vectors")),
                recall=_fraction(summary.get(f"ann.{index}.recall")),
            )


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


def _fraction(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _of_version(table: Table, version: IndexVersion) -> RunRecord:
    """Return what can be told of a version that carries no record of its own run."""
    snapshot = table.snapshot_by_id(version.snapshot_id or -1)
    recall = version.routing.measured
    return RunRecord(
        run_id=version.run_id,
        action="published",
        at_ms=snapshot.timestamp_ms if snapshot else 0,
        base_snapshot_id=version.coverage.base_snapshot_id,
        rows=version.vectors,
        recall=recall.recall if recall else None,
    )


def _entry(
    table: Table, record: RunRecord, version: IndexVersion | None, live: LiveState
) -> HistoryEntry:
    return HistoryEntry(
        record=record,
        trigger=trigger_of(record.run_id),
        snapshot_id=version.snapshot_id if version else None,
        file=version.path if version else "",
        coverage=view_of(table, version, live).coverage if version else None,
    )


def _evaluations(table: Table, index: str) -> Iterator[RunRecord]:
    for evaluation in evaluations(table, index):
        yield RunRecord(
            run_id=evaluation.run_id,
            action="evaluate",
            at_ms=evaluation.at_ms,
            reason=(
                f"version of run {evaluation.version_run_id}, {evaluation.queries} queries, "
                f"k={evaluation.k}"
            ),
            base_snapshot_id=evaluation.base_snapshot_id,
            rows=evaluation.rows,
            seconds=evaluation.seconds,
            recall=evaluation.recall if evaluation.queries else None,
            coverage=evaluation.coverage,
        )


def _evaluated(record: RunRecord) -> HistoryEntry:
    return HistoryEntry(record=record, trigger=trigger_of(record.run_id), coverage=record.coverage)
