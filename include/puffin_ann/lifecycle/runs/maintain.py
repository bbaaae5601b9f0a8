"""The maintenance window: registrations made safe, merges and rebuilds due, what is old removed."""

import logging
from collections.abc import Collection, Sequence
from typing import Any

from puffin_ann.declaration import IndexDeclaration, known_declarations
from puffin_ann.errors import DeclarationError, LeaseHeldError, PuffinAnnError
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runtime.progress import metering
from puffin_ann.lifecycle.runtime.runners import Runner
from puffin_ann.search.version.versions import how_to_build_again

log = logging.getLogger("puffin_ann")


def declared_on(table: str) -> list[IndexDeclaration]:
    """Return the declarations of a table's indexes; none where this machine knows of none.

    For what removes things: it needs to know of every index what is declared, and goes by what is
    recorded in the table of those that it does not know.

    Raises:
        DeclarationError: one of them is not valid.
    """
    known = known_declarations()
    if known is None:
        return []
    if known.problems:
        raise known.problems[0]
    return known.on(table)


@metering("guard the table's index files")
def guard_table(table: str, *, owner: str) -> tuple[str, ...]:
    """Make a table's index files safe from expiry and orphan removal; may publish them again.

    Args:
        table: by name.
        owner: the run that does it; others publish before or after.

    Returns:
        A sentence for each thing done, and for each index of which no file is left.
    """
    with leases.publishing(table, owner, "guard"):
        # It removes nothing: a declaration that is not valid must not keep it from its work.
        known = known_declarations()
        found = guard(table, known.on(table) if known else ())
    lost = [
        f"no readable file of index {name!r} is left; {how_to_build_again(name)}"
        for name in found.lost
    ]
    return (*found.actions, *lost)


@metering("clean up")
def clean_table(table: str, *, owner: str) -> tuple[str, ...]:
    """Remove superseded versions beyond their retention, and what failed runs left behind.

    Args:
        table: by name.
        owner: the run that does it; nobody publishes meanwhile.

    Returns:
        A sentence for each thing removed, or that could not be, or is kept since others may need
        it.

    Raises:
        DeclarationError: a declaration is not valid, and with it what is to be kept is not known.
    """
    with leases.publishing(table, owner, "clean"):
        found = clean(table, declared_on(table), owner=owner)
    gone = [f"removed {gone.kind} {gone.location}: {gone.reason}" for gone in found.gone]
    # What old metadata alone names is kept each night, and nothing to be told each night.
    told = found.kept if found.notes else ()
    kept = [f"kept {sentence.kind} {sentence.location}: {sentence.why}" for sentence in told]
    failed = [f"not removed: {problem}" for problem in found.failed]
    return (*gone, *failed, *kept, *(found.notes if kept else ()))


def maintain(
    declarations: Sequence[IndexDeclaration],
    *,
    run_id: str,
    runner: Runner,
    wait: bool = True,
    tell: leases.Tell | None = None,
    postponed: Collection[str] = (),
    left_out: Collection[str] = (),
) -> dict[str, Any]:
    """Maintain indexes of one table in this process, as their DAGs do.

    Args:
        declarations: of the indexes, at least one.
        run_id: names the run.
        runner: where the stages' tasks run.
        wait: for other runs on an index; else fail at once.
        tell: gets a sentence when there is something to wait for.
        postponed: indexes of which a build, merge or rebuild waits; they only follow the table.
        left_out: indexes that nothing is done for but what is done for the table.

    Returns:
        `actions`: what was guarded and cleaned, or why nothing was cleaned; `indexes`: by name,
        what its refresh returned.

    Raises:
        LeaseHeldError: another run works on an index, and `wait` is not set.
        PuffinAnnError: an index could not be maintained, the first of them, others are logged; the
            rest was.
    """
    from puffin_ann.lifecycle.runs.in_process import refresh_in_process

    table = declarations[0].table
    actions = list(guard_table(table, owner=run_id))
    indexes: dict[str, Any] = {}
    failed: PuffinAnnError | None = None
    for declaration in (each for each in declarations if each.name not in left_out):
        try:
            with leases.writing(table, declaration.name, run_id, "maintain", wait=wait, tell=tell):
                indexes[declaration.name] = refresh_in_process(
                    declaration,
                    run_id=run_id,
                    maintenance=declaration.name not in postponed,
                    postpones=declaration.name in postponed,
                    runner=runner,
                )
        except LeaseHeldError:
            raise
        except PuffinAnnError as error:  # no reason to neglect the others
            if failed is not None:
                log.error("maintain: index %s: %s", declaration.name, error)
            failed = failed or error
    try:
        actions += clean_table(table, owner=run_id)
    except DeclarationError as error:
        actions.append(f"not cleaned, since it is not known what is to be kept: {error}")
    if failed is not None:
        raise failed
    return {"actions": actions, "indexes": indexes}
