"""What is published compared with what is declared, and with what was published before."""

from collections.abc import Iterator, Sequence

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lifecycle.maintain.findings import Finding
from puffin_ann.lifecycle.maintain.guard import GuardPlan
from puffin_ann.lifecycle.maintain.published_before import published_before
from puffin_ann.lifecycle.published.inventory import IndexFile, Inventory
from puffin_ann.lifecycle.published.recorded_declaration import Recorded


def lost(
    inventory: Inventory, plan: GuardPlan, declarations: Sequence[IndexDeclaration] | None
) -> Iterator[Finding]:
    """Tell which indexes have no readable file: those that had one, and those never built.

    Snapshots that name an index may have expired, and with them all that the table's metadata says
    of it: of declared ones, what is kept elsewhere is asked, too.
    """
    for index in plan.lost:
        yield _lost(index, "a snapshot names its publication")
    for declaration in declarations or ():
        if declaration.name in plan.live or declaration.name in plan.lost:
            continue
        sign = published_before(inventory.table, declaration.name)
        yield _lost(declaration.name, sign) if sign else _unbuilt(declaration.name)


def _lost(index: str, sign: str) -> Finding:
    return Finding(
        kind="lost",
        indexes=(index,),
        file="",
        what=f"index {index!r} was published ({sign}), and no readable file of it is left",
        remedy=f"build it again: 'puffin-ann build {index}' or its build DAG",
    )


def _unbuilt(index: str) -> Finding:
    return Finding(
        kind="unbuilt",
        indexes=(index,),
        file="",
        what=f"index {index!r} is declared, and nothing tells that it was built yet",
        remedy=f"its next run builds it, 'puffin-ann build {index}' does now",
        is_problem=False,
    )


def undeclared(
    inventory: Inventory, plan: GuardPlan, declarations: Sequence[IndexDeclaration] | None
) -> Iterator[Finding]:
    """Tell which indexes are published, and not declared as far as this machine knows."""
    known = {declaration.name for declaration in declarations or ()}
    for index in sorted(plan.live.keys() - known):
        file = plan.live[index]
        command = f"{name_of(inventory.table)} {index}"
        show = f"'puffin-ann status {command} --declaration'"
        recorded = _recorded(file, index).in_words()
        if declarations is None:
            yield Finding(
                kind="unknown",
                indexes=(index,),
                file=file.path,
                what=f"whether index {index!r} is declared is not known here: this machine knows "
                f"no declarations, or not all; {recorded}",
                remedy=f"none needed; {show} shows what it was published by",
                is_problem=False,
            )
            continue
        yield Finding(
            kind="undeclared",
            indexes=(index,),
            file=file.path,
            what=f"index {index!r} is published, and no declaration here names it; {recorded}",
            remedy=f"declare it, here or where it is maintained: {show} prints what it was "
            f"published by. Only if nobody needs it: 'puffin-ann drop {command}'",
        )


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
