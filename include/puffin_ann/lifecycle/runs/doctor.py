"""Find what is wrong with a table's indexes, and repair what can be repaired."""

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import EnvironmentProblemError, PuffinAnnError
from puffin_ann.lake.catalog.tables import load_table, name_of
from puffin_ann.lake.store.leases import Lease
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.examination.damage import Damage, find_damage
from puffin_ann.lifecycle.maintain.examination.examine import examine
from puffin_ann.lifecycle.maintain.examination.findings import Finding
from puffin_ann.lifecycle.maintain.examination.lease_findings import lease_findings
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.maintain.lost_tombstones import remake_tombstones
from puffin_ann.lifecycle.maintain.plan_repair import declaration_of
from puffin_ann.lifecycle.maintain.repair import repair
from puffin_ann.lifecycle.retention.withheld import Protection
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runtime.run_ids import new_run_id
from puffin_ann.lifecycle.versions.inventory import Inventory, take_inventory

NOT_CLEANED = (
    "removed nothing that may be old: while a declaration is not valid, it is not known what is to "
    "be kept; correct it, and do this again"
)


class Diagnosis(BaseModel):
    """What was found, and what was done about it.

    Attributes:
        findings: problems first.
        actions: one sentence for each thing repaired.
    """

    model_config = ConfigDict(frozen=True)

    table: str
    findings: tuple[Finding, ...]
    actions: tuple[str, ...] = ()

    @property
    def problems_left(self) -> int:
        """Number of problems that were not repaired."""
        return sum(finding.is_problem and not finding.repaired for finding in self.findings)


def doctor(
    table: str | Table,
    declarations: Iterable[IndexDeclaration] | None = None,
    *,
    is_all: bool = True,
    fix: bool = False,
    quick: bool = False,
    at_ms: int | None = None,
) -> Diagnosis:
    """Examine a table's indexes; with `fix`, make damaged parts again, guard and clean up.

    Args:
        table: by name, or as loaded.
        declarations: of this table's indexes; None: it is not known which are declared.
        is_all: whether no others are declared; else nothing is removed, as it might be theirs.
        fix: repair what can be repaired.
        quick: leave out the checksums of blobs, for which whole files are read, and whether shards
            fit the rest, for which they are unpacked, one at a time, to a temporary folder.
        at_ms: what counts as now, milliseconds since 1970.

    Raises:
        StoreUnavailableError: the store does not answer, or refuses access: of a table of which
            that is all that can be said nothing else is.
    """
    loaded = load_table(table)
    declared = None if declarations is None else tuple(declarations)
    inventory = take_inventory(loaded, at_ms=at_ms)
    damage = find_damage(inventory, quick=quick, declarations=declared or ())
    of_leases, odd = lease_findings(loaded)
    before = [*examine(inventory, declared, damage, is_all=is_all), *of_leases]
    before.sort(key=lambda finding: not finding.is_problem)
    if not fix:
        return Diagnosis(table=name_of(loaded), findings=tuple(before))
    made, actions = _make_again(inventory, declared or (), damage)
    made |= _remake_tombstones(loaded, damage, actions)
    stays = {damaged.file.path for damaged in damage if damaged.is_repaired_by_parts} - made
    repaired, replaced = repair(
        loaded, [damaged for damaged in damage if damaged.file.path not in stays]
    )
    actions += replaced
    actions += _remove_leases(loaded, odd)
    actions += list(guard(loaded, declared or ()).actions)
    actions += _clean(loaded, declared or (), at_ms) if is_all else [NOT_CLEANED]
    inventory = take_inventory(loaded, at_ms=at_ms)
    # Files are not read whole a second time: what was damaged and stayed is damaged.
    left = examine(inventory, declared, find_damage(inventory, quick=True), is_all=is_all)
    left += lease_findings(loaded)[0]
    still = {_identity(finding) for finding in left if finding.is_problem}
    still |= {
        _identity(finding)
        for finding in before
        if finding.kind == "damaged" and finding.file not in repaired | made
    }
    found = {_identity(finding) for finding in before}
    findings = [
        finding
        if _identity(finding) in still
        else finding.model_copy(update={"repaired": finding.is_problem})
        for finding in before
    ] + [finding for finding in left if finding.is_problem and _identity(finding) not in found]
    return Diagnosis(table=name_of(loaded), findings=tuple(findings), actions=tuple(actions))


def _make_again(
    inventory: Inventory, declared: Sequence[IndexDeclaration], damage: Iterable[Damage]
) -> tuple[frozenset[str], list[str]]:
    """Have damaged shards and cells made of rows; returns the files, and what was done.

    The files are those whose versions were damaged and have a newer one now. They may stay, for
    what is whole of them.
    """
    made: set[str] = set()
    actions: list[str] = []
    by_index = {damaged.index: damaged for damaged in damage if damaged.is_repaired_by_parts}
    failed: set[str] = set()
    for index, damaged in sorted(by_index.items()):
        declaration = declaration_of(inventory, index, declared)
        if declaration is None:
            continue
        run_id = new_run_id(f"repair-{index}")
        try:
            with leases.writing(inventory.table, index, run_id, "repair it", wait=False):
                done = refresh_in_process(declaration, run_id=run_id, repair=True)
        except PuffinAnnError as error:  # what else is wrong may be repaired all the same
            failed.add(damaged.file.path)
            actions.append(f"could not make index {index} whole again: {error}")
            continue
        if done["snapshot_id"] is None:
            failed.add(damaged.file.path)
            actions.append(f"did not make index {index} whole again: {done['reason']}")
            continue
        made.add(damaged.file.path)
        actions.append(
            f"published index {index} as snapshot {done['snapshot_id']}, {done['bytes_written']:,} "
            f"bytes written and {done['bytes_copied']:,} copied: {done['reason']}"
        )
    return frozenset(made - failed), actions


def _remake_tombstones(
    table: Table, damage: Iterable[Damage], actions: list[str]
) -> frozenset[str]:
    """Have tombstone changes made again; returns the files, and notes what was done."""
    made: set[str] = set()
    for damaged in damage:
        if not damaged.is_of_tombstones:
            continue
        owner = new_run_id(f"repair-{damaged.index}")
        try:
            with (
                leases.writing(table, damaged.index, owner, "repair it", wait=False),
                leases.publishing(table, owner, f"repair index {damaged.index!r}"),
            ):
                done = remake_tombstones(table, damaged.index)
        except PuffinAnnError as error:  # an older version is published then, as of other damage
            actions.append(f"could not make tombstones of index {damaged.index} again: {error}")
            continue
        if done is not None:
            made.add(damaged.file.path)
            actions.append(
                f"published index {damaged.index} as snapshot {done.snapshot_id}, with tombstone "
                f"changes made again: {done.path}"
            )
    return frozenset(made)


def _clean(table: Table, declarations: Sequence[IndexDeclaration], at_ms: int | None) -> list[str]:
    try:
        cleaned = clean(table, declarations, at_ms=at_ms)
    except EnvironmentProblemError as error:  # what was repaired before has to be told
        return [f"removed nothing: {error}"]
    done = [f"removed {gone.kind} {gone.location}: {gone.reason}" for gone in cleaned.gone]
    return done + [f"could not remove {problem}" for problem in cleaned.failed]


def _remove_leases(table: Table, odd: Sequence[Lease]) -> list[str]:
    if not odd or Protection.of(table).nothing_goes:
        return []
    return [f"removed the lease on {lease.what}" for lease in odd if lease.remove()]


def _identity(finding: Finding) -> tuple[str, tuple[str, ...], str]:
    return (finding.kind, finding.indexes, finding.file)
