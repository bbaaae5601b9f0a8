"""Find what is wrong with a table's indexes; changes nothing."""

from collections.abc import Iterable, Iterator, Sequence

from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import (
    DataFileError,
    EnvironmentProblemError,
    FormatError,
    PuffinAnnError,
    StoreUnavailableError,
    UnsupportedTableError,
)
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.metadata.expiry import Horizon, surviving
from puffin_ann.lifecycle.maintain.examination.damage import Damage
from puffin_ann.lifecycle.maintain.examination.doctor_declared import (
    find_lost,
    find_undeclared,
    find_unfit,
    secrets,
)
from puffin_ann.lifecycle.maintain.examination.findings import Finding
from puffin_ann.lifecycle.maintain.examination.foreign_statistics import find_displaced, is_missed
from puffin_ann.lifecycle.maintain.guard_plan import LEAD_MS, GuardPlan, plan_guard
from puffin_ann.lifecycle.publish.republish import bytes_to_copy_under_tag
from puffin_ann.lifecycle.retention.foreign_history import describe
from puffin_ann.lifecycle.retention.removable import find_removable
from puffin_ann.lifecycle.retention.rules import apply_retention, names_of_snapshots, policies
from puffin_ann.lifecycle.retention.withheld import Protection
from puffin_ann.lifecycle.versions.base_version import nearest_version
from puffin_ann.lifecycle.versions.inventory import IndexFile, Inventory
from puffin_ann.search.version.index_version import load_version
from puffin_ann.search.version.indexed_column import other_column, why_unanswered
from puffin_ann.search.version.snapshot_view import LiveState, live_state, view_of
from puffin_ann.search.version.versions import index_in_name

STALE = 0.05
"""Share of the live rows that searches scan or mask before an index counts as stale."""


def examine(
    inventory: Inventory,
    declarations: Sequence[IndexDeclaration] | None = None,
    damage: Iterable[Damage] = (),
    *,
    is_all: bool = True,
) -> list[Finding]:
    """Return what is to be said of a table's indexes, problems first; changes nothing.

    Args:
        inventory: of the table.
        declarations: of its indexes; None: it is not known which are declared.
        damage: that was found.
        is_all: whether no others are declared.
    """
    plan = plan_guard(inventory, declarations or ())
    protection = Protection.of(inventory.table, at_ms=inventory.now_ms)
    unfit = list(find_unfit(inventory, plan, declarations))
    refused = {finding.indexes for finding in unfit}
    lost = find_lost(inventory, plan, declarations)
    findings = [
        *_foreign(protection),
        *(each for each in lost if each.kind != "unbuilt" or each.indexes not in refused),
        *unfit,
        *_registrations(inventory, plan, declarations or ()),
        *_displaced(inventory),
        *_removable(inventory, declarations or (), protection),
        *find_undeclared(inventory, plan, declarations, is_all=is_all),
        *secrets(inventory, plan),
        *_stale(inventory, plan, declarations if is_all else None),
        *_damaged(damage),
    ]
    return sorted(findings, key=lambda finding: not finding.is_problem)


def _indexes(file: IndexFile) -> tuple[str, ...]:
    return tuple(sorted({held.index for held in file.holds}))


def _copies(inventory: Inventory, index: str, file: IndexFile) -> str:
    """Say what the guard copies to publish an index under a tag."""
    try:
        size = bytes_to_copy_under_tag(inventory.table, index, file)
    except (FormatError, FileNotFoundError):  # which is reported as damage
        return "copies what no tag of ours holds of it"
    return f"copies {size:,} bytes of it that no tag of ours holds"


def _in_name(file: IndexFile) -> tuple[str, ...]:
    """Return the index that a file was published for, by its name alone."""
    name = index_in_name(file.path)
    return () if name is None else (name,)


def _registrations(
    inventory: Inventory, plan: GuardPlan, declarations: Sequence[IndexDeclaration]
) -> Iterator[Finding]:
    for file in inventory.files:
        if file.bytes is None and file.entries:
            yield Finding(
                kind="dangling",
                indexes=_indexes(file) or _in_name(file),
                file=file.path,
                what=f"registered under snapshots {_ids(file.entries)}, and not there",
                remedy=_of_what_is_gone(inventory, plan, file),
            )
    for tag, file in plan.hold.values():
        yield Finding(
            kind="untagged",
            indexes=_indexes(file) or _in_name(file),
            file=file.path,
            what=f"its tag {tag} was dropped: the next expiry and orphan removal take the file",
            remedy="the guard sets the tag again",
        )
    for index in plan.move:
        file = plan.live[index]
        yield Finding(
            kind="untagged",
            indexes=(index,),
            file=file.path,
            what=f"no tag of ours holds the newest version of index {index!r}",
            remedy=f"the guard publishes it under one, which {_copies(inventory, index, file)}; "
            "publish: statistics in its declaration leaves it where it is",
            is_problem=False,
        )
    published = inventory.published
    verdicts = apply_retention(
        inventory.with_needed(published),
        policies(declarations, published),
        names_of_snapshots(inventory.table),
    )
    healed = {file.path for file, _ in plan.register.values()}
    if plan.again:
        healed |= {file.path for file in plan.live.values()}
    healed |= {plan.live[index].path for index in plan.move}
    expected = surviving(inventory.table, Horizon(inventory.now_ms + LEAD_MS))
    for verdict in verdicts:
        if verdict.is_kept:
            yield from _registration(inventory, verdict.file, expected, verdict.file.path in healed)


def _of_what_is_gone(inventory: Inventory, plan: GuardPlan, file: IndexFile) -> str:
    """Say what is done about a registration of a file that is gone."""
    fix = f"'puffin-ann doctor {name_of(inventory.table)} --fix' or the next maintenance"
    remedy = f"{fix} removes the registration, and the tag where one of ours holds it"
    older = [index for index in _indexes(file) or _in_name(file) if index in plan.live]
    again = [f"'puffin-ann refresh {index}' covers again what only it did" for index in older]
    return "; ".join([remedy, *again])


def _registration(
    inventory: Inventory, file: IndexFile, expected: frozenset[int], is_healed: bool
) -> Iterator[Finding]:
    """Tell what became of the registrations of a file that is kept."""
    is_safe = bool(expected & file.entries.keys())
    remedy = "the guard registers or publishes it again" if is_healed else _elsewhere(file)
    problem = not is_safe or (is_healed and not file.entries)
    for slot in file.named_by:
        if slot in file.entries:
            continue
        other = slots(inventory.table).get(slot)
        what = (
            f"its snapshot {slot} has lost its registration"
            if other is None
            else f"under its snapshot {slot}, {other.statistics_path} is registered instead"
        )
        yield Finding(
            kind="dropped" if other is None else "replaced",
            indexes=_indexes(file),
            file=file.path,
            what=what,
            remedy=remedy,
            is_problem=problem,
        )
    if not file.entries and not file.named_by:
        yield Finding(
            kind="dropped",
            indexes=_indexes(file),
            file=file.path,
            what="earlier metadata registered it, and nothing does now",
            remedy=remedy,
        )
    if file.entries and not is_safe:
        yield Finding(
            kind="expiring",
            indexes=_indexes(file),
            file=file.path,
            what=f"an expiry in the next 24 hours removes snapshots {_ids(file.entries)}, the only "
            "ones it is registered under",
            remedy=remedy,
        )


def _elsewhere(file: IndexFile) -> str:
    if file.entries:
        return f"none needed: it is registered under snapshots {_ids(file.entries)}"
    return "none: there is no snapshot left that it could be registered under"


def _ids(snapshot_ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(snapshot_ids)))


def _displaced(inventory: Inventory) -> Iterator[Finding]:
    for displaced in find_displaced(inventory.table):
        is_needed = is_missed(inventory, displaced)
        yield Finding(
            kind="displaced",
            indexes=(),
            file=displaced.entry.statistics_path,
            what=f"statistics of others under snapshot {displaced.snapshot_id}, "
            f"whose place {displaced.by} "
            "took without listing what they do",
            remedy="let whoever made them make them again, such as by ANALYZE TABLE or "
            "compute_table_stats; the guard then publishes one file that holds both"
            if is_needed
            else "none needed: no reader of the head would use them",
            is_problem=is_needed,
        )


def _foreign(protection: Protection) -> Iterator[Finding]:
    for foreign in describe(protection.reach):
        yield Finding(
            kind="foreign",
            indexes=(),
            file=foreign.file,
            what=foreign.what,
            remedy=foreign.remedy,
            is_problem=foreign.is_problem,
        )


def _removable(
    inventory: Inventory, declarations: Sequence[IndexDeclaration], protection: Protection
) -> Iterator[Finding]:
    found = find_removable(inventory, declarations)
    lists = [removable for removable in found if removable.kind == "manifest list"]
    if lists:  # most publications leave one, of a snapshot that loses its tag thereby
        yield Finding(
            kind="orphan",
            indexes=(),
            file="",
            what=f"{len(lists)} manifest lists of snapshots of ours that went with their tags, or "
            "never came to be",
            remedy="'puffin-ann clean' removes those that no earlier metadata names",
            is_problem=False,
        )
    for removable in found:
        if removable.kind in ("superseded version", "manifest list"):
            continue
        left = removable.grace_seconds - removable.idle_seconds
        later = "" if removable.is_due else f" in {left // 3600} h {left % 3600 // 60} min"
        kept = protection.why_kept(removable) if removable.is_due else ""
        yield Finding(
            kind="orphan",
            indexes=(),
            file=removable.location,
            what=f"{removable.kind}: {removable.why}",
            remedy=f"none: {kept}" if kept else f"'puffin-ann clean' removes it{later}",
            is_problem=removable.is_due and not kept,
        )


def _stale(
    inventory: Inventory, plan: GuardPlan, declarations: Sequence[IndexDeclaration] | None
) -> Iterator[Finding]:
    if inventory.head is None:
        return
    try:
        live = live_state(inventory.table, inventory.head)
    except StoreUnavailableError:
        raise
    except (DataFileError, EnvironmentProblemError) as error:
        for index, file in sorted(plan.live.items()):
            yield _unknown(index, file, error)
        return
    known = None if declarations is None else {declaration.name for declaration in declarations}
    for index, file in sorted(plan.live.items()):
        remedy = f"refresh it: 'puffin-ann refresh {index}' or its refresh DAG"
        if known is not None and index not in known:
            remedy = "declare it again, under this name or another, and refresh it"
        yield from _stale_index(inventory.table, index, file, live, remedy)


def _unknown(index: str, file: IndexFile, error: PuffinAnnError) -> Finding:
    """Say why it cannot be told how far an index is behind."""
    return Finding(
        kind="stale", indexes=(index,), file=file.path, what=str(error), remedy="see there"
    )


def _stale_index(
    table: Table, index: str, file: IndexFile, live: LiveState, remedy: str
) -> Iterator[Finding]:
    try:
        version = load_version(table.io, file.path, index, length=file.bytes)
    except (FormatError, FileNotFoundError):
        return  # which is reported as damage
    if version is None:
        return
    try:
        view = view_of(table, version, live)
    except StoreUnavailableError:
        raise
    except (UnsupportedTableError, DataFileError, EnvironmentProblemError) as error:
        yield _unknown(index, file, error)
        return
    is_other = other_column(version, table.schema()) is not None
    nearest = nearest_version(table, index, live) if view.cost or is_other else None
    if nearest is not None and (is_other or nearest.view.cost < view.cost):
        version, view = nearest.version, nearest.view  # as searches do, which an older one answers
    other = why_unanswered(table, [version], view)
    if other is not None:
        yield Finding(
            kind="column",
            indexes=(index,),
            file=file.path,
            what=f"index {index!r} does not answer for the table as it is: it {other.what}",
            remedy=other.remedy,
        )
        return
    if view.cost > STALE * max(1, view.live_rows):
        yield Finding(
            kind="stale",
            indexes=(index,),
            file=file.path,
            what=f"searches scan {view.rows_to_scan:,} rows that index {index!r} does not cover "
            f"and mask {view.rows_masked:,} that are gone, of {view.live_rows:,} live ones "
            f"(coverage {view.coverage:.1%})",
            remedy=remedy,
        )


def _damaged(found: Iterable[Damage]) -> Iterator[Finding]:
    for finding in found:
        yield Finding(
            kind="damaged",
            indexes=finding.indexes or _indexes(finding.file),
            file=finding.file.path,
            what=finding.what,
            remedy=finding.remedy,
            is_problem=finding.is_problem,
        )
