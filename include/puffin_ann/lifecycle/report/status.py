"""The state of a table's indexes, for people and for machines."""

import io
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table
from rich.table import Table as Grid

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import IndexNotFoundError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.catalog.tables import snapshot as find_snapshot
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.documents.run import Trial
from puffin_ann.lifecycle.maintain.former_names import renamings
from puffin_ann.lifecycle.versions.index_state import bytes_of
from puffin_ann.lifecycle.versions.recorded_declaration import Recorded
from puffin_ann.moments import as_time
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.indexed_column import why_unanswered
from puffin_ann.search.version.snapshot_view import LiveState, live_state, view_of
from puffin_ann.search.version.versions import all_index_names, require_found, require_no_damage
from puffin_ann.terminal import LiteralConsole
from puffin_ann.wording import counted


class IndexStatus(BaseModel):
    """The newest version of one index, seen from the table's current snapshot.

    `vectors` and `delta_rows` leave tombstones out; `tombstone_ratio` is the highest of a shard;
    `bytes` are those of the index's own blobs, which may be in `earlier_files`, too, other files
    that the version names; `file_bytes` those of the file, which holds the
    table's other indexes and others' statistics besides; `declared` is None where it is not known
    which indexes are declared; `tag` is the tag of ours that holds the file, None where none does;
    `stored_vectors` is the form that shards store vectors in;
    `undone` tells of a merge or rebuild that would have lost recall, and what to do;
    `problems` tells of versions that cannot be read, one sentence each; `other_column` why searches
    of the current snapshot are refused: the column is not what its name means by now;
    `declaration` is what the version was published by, as the table
    records it: without `spark`, and empty if none can be read.
    """

    model_config = ConfigDict(frozen=True)

    index: str
    table: str
    algorithm: str
    trials: tuple[Trial, ...]
    metric: str
    dimension: int
    stored_vectors: str = "float32"
    snapshot_id: int | None
    base_snapshot_id: int
    published_at: str | None
    file: str
    bytes: int
    file_bytes: int
    earlier_files: int = 0
    shards: int
    partitions: int
    deltas: int
    delta_rows: int
    vectors: int
    tombstones: int
    tombstone_ratio: float
    skipped: dict[str, int]
    coverage: float
    rows_to_scan: int
    rows_masked: int
    recall: float | None
    recall_low: float | None
    recall_high: float | None
    recall_k: int | None
    recall_queries: int | None
    recall_target: float | None
    search_width: int
    probe_partitions: int
    seconds: dict[str, float]
    fingerprint: str
    run_id: str
    declared: bool | None = None
    renamed_to: str | None = None
    tag: str | None = None
    undone: str = ""
    problems: tuple[str, ...] = ()
    other_column: str | None = None
    declaration: dict[str, Any] = {}


def status(
    table: Table,
    index: str | None = None,
    declarations: Iterable[IndexDeclaration] | None = None,
) -> list[IndexStatus]:
    """Return the status of one index, or of all indexes of a table, by name.

    Args:
        table: the table, as loaded.
        index: its name; None: all.
        declarations: of this table's indexes; None: it is not known which are declared.

    Raises:
        IndexNotFoundError: no such index, or none at all.
        DamagedIndexError: one is published, and no version of it can be read.
    """
    names = [index] if index else all_index_names(table)
    if not names:
        require_no_damage(table)
        raise IndexNotFoundError(
            f"table {name_of(table)} has no index; build one with 'puffin-ann build' or by its DAG"
        )
    current = table.current_snapshot()
    live = live_state(table, current.snapshot_id if current else None)
    known = (
        None
        if declarations is None
        else {declaration.name: declaration for declaration in declarations}
    )
    renamed = renamings(table, known.values()) if known and set(names) - known.keys() else {}
    found = {name: require_found(table, name) for name in names}
    return [
        _status(table, found[name].versions, live).model_copy(
            update={
                "problems": found[name].problems if found[name].is_damaged else (),
                "declared": None if known is None else name in known,
                "renamed_to": renamed.get(name),
            }
        )
        for name in names
    ]


def _status(table: Table, versions: Sequence[IndexVersion], live: LiveState) -> IndexStatus:
    version = versions[0]
    routing = version.routing
    noted = IndexProperties(routing.properties)
    view = view_of(table, version, live)
    recall = routing.measured
    other = why_unanswered(table, versions, view)
    deltas = [shard for shard in routing.shards if shard.kind == "delta"]
    return IndexStatus(
        index=version.index,
        table=name_of(table),
        algorithm=routing.algorithm,
        trials=noted.trials,
        metric=routing.metric,
        dimension=routing.dimension,
        stored_vectors=routing.vectors,
        snapshot_id=version.snapshot_id,
        base_snapshot_id=version.coverage.base_snapshot_id,
        published_at=_time_of(table, version.snapshot_id),
        file=version.path,
        bytes=bytes_of(table, version),
        file_bytes=version.length,
        earlier_files=len(version.needs),
        shards=len(routing.shards) - len(deltas),
        partitions=routing.cells.count,
        deltas=len(deltas),
        delta_rows=sum(delta.rows - delta.tombstones for delta in deltas),
        vectors=version.vectors,
        tombstones=sum(shard.tombstones for shard in routing.shards),
        tombstone_ratio=version.tombstone_ratio,
        skipped=noted.skipped,
        coverage=view.coverage,
        rows_to_scan=view.rows_to_scan,
        rows_masked=view.rows_masked,
        recall=recall.recall if recall else None,
        recall_low=recall.low if recall else None,
        recall_high=recall.high if recall else None,
        recall_k=recall.k if recall else None,
        recall_queries=recall.queries if recall else None,
        recall_target=recall.target if recall else None,
        search_width=routing.search_width,
        probe_partitions=routing.probe_partitions,
        seconds=noted.stage_seconds,
        fingerprint=noted.fingerprint,
        run_id=noted.run_id,
        undone=noted.undone.told(version.index),
        tag=own_tags(table).get(version.snapshot_id or 0),
        other_column=other and f"{other.what}; {other.remedy}",
        declaration=dict(Recorded.of(noted.declaration).fields),
    )


def _time_of(table: Table, snapshot_id: int | None) -> str | None:
    if snapshot_id is None or table.snapshot_by_id(snapshot_id) is None:
        return None
    found = find_snapshot(table, snapshot_id)
    if found is None:
        return None
    return as_time(found.timestamp_ms, sep="T")


def grid(found: IndexStatus) -> Grid:
    """Return one index's status as a table for a terminal."""
    table = Grid(
        title=f"index {found.index} on {found.table}", show_header=False, title_justify="left"
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _lines(found):
        table.add_row(name, value)
    return table


def _lines(found: IndexStatus) -> Iterable[tuple[str, str]]:
    if found.declared is not True:
        yield from _declared(found)
    yield from _troubles(found)
    form = "" if found.stored_vectors == "float32" else f", vectors: {found.stored_vectors}"
    yield "algorithm", f"{found.algorithm}, {found.metric}, {found.dimension} dimensions{form}"
    for trial in found.trials:
        yield (
            "tried",
            f"{trial.algorithm}: {trial.queries_per_second:,.0f} queries a second at recall "
            f"{trial.recall:.4f}, {trial.rows:,} sampled rows",
        )
    yield "snapshot", f"{found.snapshot_id} (covers {found.base_snapshot_id})"
    if found.tag:
        yield "tag", f"{found.tag}, which keeps the file"
    yield "published", found.published_at or "not in the table's history any more"
    yield "shards", f"{found.shards}, {counted(found.partitions, 'partition')}"
    yield from _deltas(found)
    yield "vectors", f"{found.vectors:,}"
    if found.skipped:
        yield "skipped", f"{_counts(found.skipped)}: rows that no search can find"
    if found.tombstones:
        yield "tombstones", f"{found.tombstones:,}, at most {found.tombstone_ratio:.1%} of a shard"
    files = f"a file of {found.file_bytes:,}"
    if found.earlier_files:
        files += f" and {found.earlier_files} of earlier versions"
    yield "bytes", f"{found.bytes:,} of the index, in {files}"
    uncovered = f"; {counted(found.rows_to_scan, 'row')} to scan, {found.rows_masked:,} masked"
    behind = found.rows_to_scan or found.rows_masked
    yield "coverage", f"{found.coverage:.2%}" + (uncovered if behind else "")
    if found.recall is not None:
        yield (
            "recall",
            f"{found.recall:.4f} at k={found.recall_k} (95 % {found.recall_low:.4f} to "
            f"{found.recall_high:.4f}, {found.recall_queries:,} queries), "
            f"target {found.recall_target}",
        )
    yield (
        "search",
        f"width {found.search_width}, {counted(found.probe_partitions, 'partition')} probed",
    )
    yield "seconds", ", ".join(f"{name} {value:.1f}" for name, value in found.seconds.items())
    yield "file", found.file


def _troubles(found: IndexStatus) -> Iterable[tuple[str, str]]:
    if found.problems:
        yield (
            "damaged",
            f"{'; '.join(found.problems)}; told below is the newest version that can be read: "
            f"'puffin-ann doctor {found.table}' shows what to do",
        )
    if found.other_column:
        yield "column", f"does not answer for the table as it is: it {found.other_column}"


def _deltas(found: IndexStatus) -> Iterable[tuple[str, str]]:
    """Say how many rows wait to be merged, and why they wait for longer than usual."""
    if found.deltas:
        yield "deltas", f"{found.deltas}, {counted(found.delta_rows, 'vector')}"
    if found.undone:
        yield "left undone", found.undone


def _declared(found: IndexStatus) -> Iterable[tuple[str, str]]:
    """Say what is known of an index's declaration; the table has it, whatever this machine has."""
    recorded = Recorded(found.declaration).in_words()
    show = f"'puffin-ann status {found.table} {found.index} --declaration'"
    if found.declared is None:
        yield (
            "declared",
            f"not known here: this machine knows no declarations, or not all; {recorded}; {show} "
            "shows it",
        )
    else:
        yield (
            "undeclared",
            f"no declaration here names it; {recorded}. {show} prints that, to declare it again, "
            "under this name or another",
        )
        if found.renamed_to is not None:
            yield (
                "renamed?",
                f"{found.renamed_to!r} declares its shape and is not published: 'puffin-ann rename "
                f"{found.index} {found.renamed_to}' publishes this index under that name, without "
                "building it",
            )


def _counts(reasons: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())


def as_text(statuses: Iterable[IndexStatus]) -> str:
    """Return statuses as plain text, for a log."""
    console = LiteralConsole(file=io.StringIO(), width=120, color_system=None, force_terminal=False)
    for status in statuses:
        console.print(grid(status))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text
