"""What is published compared with what is declared, and with what was published before."""

from collections.abc import Iterator, Mapping, Sequence

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import (
    DataFileError,
    EnvironmentProblemError,
    PuffinAnnError,
    StoreUnavailableError,
    TooFewRowsError,
)
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lifecycle.ingest.preconditions import require_columns, require_fit
from puffin_ann.lifecycle.maintain.examination.findings import Finding
from puffin_ann.lifecycle.maintain.examination.published_before import why_published_before
from puffin_ann.lifecycle.maintain.former_names import advice_to_rename, renamings
from puffin_ann.lifecycle.maintain.guard_plan import GuardPlan
from puffin_ann.lifecycle.versions.inventory import IndexFile, Inventory
from puffin_ann.lifecycle.versions.recorded_declaration import Recorded
from puffin_ann.search.version.snapshot_view import live_state
from puffin_ann.search.version.versions import how_to_build_again


def find_lost(
    inventory: Inventory, plan: GuardPlan, declarations: Sequence[IndexDeclaration] | None
) -> Iterator[Finding]:
    """Tell which indexes have no readable file: those that had one, and those never built.

    Snapshots that name an index may have expired, and with them all that the table's metadata says
    of it: of declared ones, what is kept elsewhere is asked, too.
    """
    known = {declaration.name: declaration for declaration in declarations or ()}

    def advice(index: str) -> str:
        if index not in known:
            return ""
        return advice_to_rename(inventory.table, known[index], known.values())

    for index in plan.lost:
        yield _lost(index, "a snapshot names its publication", advice(index))
    for index in known:
        if index in plan.live or index in plan.lost:
            continue
        sign = why_published_before(inventory.table, index)
        yield _lost(index, sign, advice(index)) if sign else _unbuilt(index, advice(index))


def _lost(index: str, sign: str, advice: str) -> Finding:
    return Finding(
        kind="lost",
        indexes=(index,),
        file="",
        what=f"index {index!r} was published ({sign}), and no readable file of it is left",
        remedy=advice or how_to_build_again(index),
    )


def _unbuilt(index: str, advice: str) -> Finding:
    return Finding(
        kind="unbuilt",
        indexes=(index,),
        file="",
        what=f"index {index!r} is declared, and nothing shows that it was built yet",
        remedy=advice or f"its next run builds it, 'puffin-ann build {index}' does now",
        is_problem=False,
    )


def find_unfit(
    inventory: Inventory, plan: GuardPlan, declarations: Sequence[IndexDeclaration] | None
) -> Iterator[Finding]:
    """Tell which declared indexes the next run refuses to build, or to refresh: it would say why.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    for declaration in declarations or ():
        is_live = declaration.name in plan.live
        try:
            if is_live or inventory.head is None:
                require_columns(declaration, inventory.table)
            else:
                require_fit(
                    declaration, inventory.table, live_state(inventory.table, inventory.head)
                )
        except StoreUnavailableError:
            raise
        except (DataFileError, EnvironmentProblemError):
            continue  # of which more is said elsewhere
        except PuffinAnnError as error:
            yield Finding(
                kind="unfit",
                indexes=(declaration.name,),
                file="",
                what=f"index {declaration.name!r} cannot be {'refreshed' if is_live else 'built'} "
                f"as it is declared: {error}",
                remedy="correct its declaration, or the table",
                is_problem=not isinstance(error, TooFewRowsError),
            )


def find_undeclared(
    inventory: Inventory,
    plan: GuardPlan,
    declarations: Sequence[IndexDeclaration] | None,
    *,
    is_all: bool,
) -> Iterator[Finding]:
    """Tell which indexes are published, and not declared as far as this machine knows.

    Args:
        inventory: of the table.
        plan: what the guard would do.
        declarations: of its indexes; None: it is not known which are declared.
        is_all: whether no others are.
    """
    known = {declaration.name for declaration in declarations or ()}
    renamed = renamings(inventory.table, declarations or ()) if plan.live.keys() - known else {}
    for index in sorted(plan.live.keys() - known):
        file = plan.live[index]
        command = f"{name_of(inventory.table)} {index}"
        show = f"'puffin-ann status {command} --declaration'"
        recorded = _recorded(file, index).in_words()
        if declarations is None or not is_all:
            why = "a declaration is not valid" if declarations else "this machine knows none"
            yield Finding(
                kind="unknown",
                indexes=(index,),
                file=file.path,
                what=f"whether index {index!r} is declared is not known here: {why}; {recorded}",
                remedy=f"none needed; {show} shows what it was published by",
                is_problem=False,
            )
            continue
        yield Finding(
            kind="undeclared",
            indexes=(index,),
            file=file.path,
            what=f"index {index!r} is published, and no declaration here names it; {recorded}",
            remedy=_if_renamed(index, renamed)
            + f"declare it, here or where it is maintained: {show} prints what it was "
            f"published by. Only if nobody needs it: 'puffin-ann drop {command}'",
        )


def _if_renamed(index: str, renamed: Mapping[str, str]) -> str:
    if index not in renamed:
        return ""
    return f"if it was renamed, 'puffin-ann rename {index} {renamed[index]}'; else "


def secrets(inventory: Inventory, plan: GuardPlan) -> Iterator[Finding]:
    """Tell which indexes record settings of Spark that look like secrets, as earlier ones may."""
    for index, file in sorted(plan.live.items()):
        found = _recorded(file, index).secrets
        if found:
            yield Finding(
                kind="secret",
                indexes=(index,),
                file=file.path,
                what=f"index {index!r} records {', '.join(found)}, which every reader of the table "
                "can read",
                remedy="change what it gives access by; the next version that is published "
                f"('puffin-ann build {index} --force') is without it, and 'puffin-ann clean "
                f"{name_of(inventory.table)}' removes those before when their grace is over",
            )


def _recorded(file: IndexFile, index: str) -> Recorded:
    text = next((held.declaration for held in file.holds if held.index == index), "")
    return Recorded.of(text)
