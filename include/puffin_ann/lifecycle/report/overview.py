"""All that is told of one index at a glance, as one small document; vectors are never read."""

from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import PuffinAnnError
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.documents.run_record import RunRecord
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.examination.damage import find_damage
from puffin_ann.lifecycle.maintain.examination.examine import examine
from puffin_ann.lifecycle.report.figures import Figures, figures_of
from puffin_ann.lifecycle.report.history import HistoryEntry, history
from puffin_ann.lifecycle.report.plan import preview
from puffin_ann.lifecycle.versions.inventory import Inventory, take_inventory
from puffin_ann.lifecycle.versions.recorded_declaration import Recorded
from puffin_ann.redaction import redact
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import live_state, view_of
from puffin_ann.search.version.versions import all_index_names, require_versions

MOST_SHARDS, MOST_RUNS, MOST_FINDINGS = 64, 12, 10
LONGEST_SENTENCE = 400
"""Characters of a sentence; errors quote what others said, at any length."""


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ShardOverview(_Told):
    """One shard or delta; `bytes` are those of its graph or rows, `at_ms` when its file came."""

    shard_id: int
    kind: str
    rows: int
    tombstones: int
    bytes: int
    at_ms: int | None = None


class VersionOverview(_Told):
    """One version that can be searched.

    Attributes:
        bytes_written: new bytes of its blobs; the others are those of versions before it.
    """

    run_id: str
    at_ms: int
    rows: int
    coverage: float
    bytes_written: int = 0


class NextRun(_Told):
    """What the next refresh would do, and what that is expected to take."""

    action: str
    reason: str
    bytes_written: int = 0
    bytes_copied: int = 0
    seconds: float = 0.0


class FindingOverview(_Told):
    """What the doctor says, but for names of files."""

    kind: str
    what: str
    remedy: str
    is_problem: bool


class IndexOverview(_Told):
    """The newest version of an index, what it is made of, and what is due.

    Attributes:
        figures: as events and metrics tell them.
        algorithm: that answers.
        dimension: of the vectors.
        rows_to_scan: live rows that it does not hold.
        rows_masked: rows that it holds and that are not live any more.
        tombstones: rows of shards that are deleted.
        recall_range: 95 % interval of the recall.
        all_bytes: of the files of all its versions.
        is_changed: the declaration has changed since it was built.
        skipped: rows without a usable vector, by reason.
        shards: the largest, `shard_count` in all.
        versions: that can be searched.
        runs: the newest, evaluations among them.
        evaluated_recall: of the newest evaluation; None if there is none.
        next_run: what a refresh would do now; None if that could not be told.
        findings: of a quick examination: no file is read whole.
        removable_bytes: that a clean-up would free now, of the whole table.
        removable: number of things that it would remove.
        notes: parts that could not be found, and why.
    """

    figures: Figures
    algorithm: str
    metric: str
    dimension: int
    column: str = ""
    key: str | None = None
    rows_to_scan: int
    rows_masked: int
    tombstones: int
    recall_range: tuple[float, float] | None = None
    all_bytes: int
    is_changed: bool
    skipped: dict[str, int] = {}
    shards: tuple[ShardOverview, ...] = ()
    shard_count: int = 0
    versions: tuple[VersionOverview, ...] = ()
    runs: tuple[RunRecord, ...] = ()
    evaluated_recall: float | None = None
    next_run: NextRun | None = None
    findings: tuple[FindingOverview, ...] = ()
    removable_bytes: int = 0
    removable: int = 0
    declaration: dict[str, Any] = {}
    notes: tuple[str, ...] = ()


def overview(declaration: IndexDeclaration) -> IndexOverview:
    """Return all that is told of a declared index; changes nothing.

    What an examination, a preview or a clean-up cannot find out is noted, and does not hide the
    rest.

    Raises:
        IndexNotFoundError: no version is published.
        PuffinAnnError: the table or the newest version cannot be read.
    """
    table = load_table(declaration.table)
    index = declaration.name
    figures = figures_of(table, index)
    version = require_versions(table, index)[0]
    head = table.current_snapshot()
    view = view_of(table, version, live_state(table, head.snapshot_id if head else None))
    noted = IndexProperties(version.routing.properties)
    measured = version.routing.measured
    inventory = take_inventory(table)
    entries = history(table, index).entries
    notes: list[str] = []
    removable = _noting(notes, "a clean-up", lambda: _removable(table, declaration)) or (0, 0)
    shards = sorted(version.routing.shards, key=lambda shard: -shard.rows)
    came = _times(inventory)
    return IndexOverview(
        figures=figures,
        algorithm=version.routing.algorithm,
        metric=version.routing.metric,
        dimension=version.routing.dimension,
        column=declaration.column,
        key=declaration.key,
        rows_to_scan=view.rows_to_scan,
        rows_masked=view.rows_masked,
        tombstones=sum(shard.tombstones for shard in shards),
        recall_range=(measured.low, measured.high) if measured else None,
        all_bytes=_bytes_of_all(inventory, index),
        is_changed=noted.fingerprint != declaration.fingerprint(),
        skipped=noted.skipped,
        shards=tuple(
            ShardOverview(
                shard_id=shard.shard_id,
                kind=shard.kind,
                rows=shard.rows,
                tombstones=shard.tombstones,
                bytes=shard.bytes,
                at_ms=came.get(_file_of(version, shard.file)),
            )
            for shard in shards[:MOST_SHARDS]
        ),
        shard_count=len(shards),
        versions=tuple(_versions(entries)),
        runs=tuple(_run(entry.record) for entry in entries[:MOST_RUNS]),
        evaluated_recall=_evaluated(entries),
        next_run=_noting(notes, "the next refresh", lambda: _next(table, declaration)),
        findings=_noting(notes, "an examination", lambda: _findings(inventory, declaration)) or (),
        removable=removable[0],
        removable_bytes=removable[1],
        declaration=dict(Recorded.of(noted.declaration).fields),
        notes=tuple(notes),
    )


def undeclared(table: str, declared: Iterable[str]) -> list[str]:
    """Return the names of indexes that are published in a table and that nothing declares."""
    return sorted(set(all_index_names(load_table(table))) - set(declared))


def sentence(text: str) -> str:
    """Return a sentence without secrets, and no longer than a document has room for."""
    clean_text = redact(text)
    if len(clean_text) <= LONGEST_SENTENCE:
        return clean_text
    return f"{clean_text[: LONGEST_SENTENCE - 1]}…"


def _noting(notes: list[str], what: str, find: Callable[[], Any]) -> Any:
    try:
        return find()
    except PuffinAnnError as error:
        notes.append(sentence(f"what {what} would find is not known: {error}"))
        return None


def _next(table: Table, declaration: IndexDeclaration) -> NextRun:
    decision = preview(table, declaration).decision
    return NextRun(
        action=decision.action,
        reason=sentence(decision.reason),
        bytes_written=decision.bytes_written,
        bytes_copied=decision.bytes_copied,
        seconds=decision.seconds,
    )


def _findings(inventory: Inventory, declaration: IndexDeclaration) -> tuple[FindingOverview, ...]:
    """Return what is found of this index alone: readers of its DAG may not know its neighbours."""
    damage = find_damage(inventory, quick=True, declarations=[declaration])
    found = examine(inventory, [declaration], damage)
    found.sort(key=lambda finding: not finding.is_problem)
    return tuple(
        FindingOverview(
            kind=finding.kind,
            what=sentence(finding.what),
            remedy=sentence(finding.remedy),
            is_problem=finding.is_problem,
        )
        for finding in found
        if finding.indexes == (declaration.name,)
    )[:MOST_FINDINGS]


def _removable(table: Table, declaration: IndexDeclaration) -> tuple[int, int]:
    found = clean(table, [declaration], dry_run=True).gone
    return len(found), sum(file.bytes for file in found)


def _times(inventory: Inventory) -> dict[str, int]:
    return {file.path: file.published_ms for file in inventory.files if file.published_ms}


def _file_of(version: IndexVersion, named: str) -> str:
    return named or version.path


def _bytes_of_all(inventory: Inventory, index: str) -> int:
    return sum(
        file.bytes or 0
        for file in inventory.files
        if any(holding.index == index for holding in file.holds)
    )


def _versions(entries: Iterable[HistoryEntry]) -> Iterable[VersionOverview]:
    for entry in entries:
        if entry.file and entry.coverage is not None:
            record = entry.record
            yield VersionOverview(
                run_id=record.run_id,
                at_ms=record.at_ms,
                rows=record.rows,
                coverage=entry.coverage,
                bytes_written=record.bytes_written,
            )


def _run(record: RunRecord) -> RunRecord:
    return record.model_copy(update={"reason": sentence(record.reason)})


def _evaluated(entries: Iterable[HistoryEntry]) -> float | None:
    found = (entry.record.recall for entry in entries if entry.record.action == "evaluate")
    return next(found, None)
