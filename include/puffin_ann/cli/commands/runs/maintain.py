"""`puffin-ann maintain`: what is due in a maintenance window, now."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from puffin_ann.cli.approval import Yes, postpones
from puffin_ann.cli.declarations import find_declared
from puffin_ann.cli.lease_options import NoWait, own_run_id
from puffin_ann.cli.output import AsJson, in_words, print_json, say, tell
from puffin_ann.cli.spark_session import Master, on_spark, require_pyspark
from puffin_ann.errors import BadInputError, DeclarationError

if TYPE_CHECKING:
    from puffin_ann.declaration import IndexDeclaration


def maintain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="TABLE|INDEX",
            help="A table, as catalog.namespace.table, or one of its declared indexes.",
        ),
    ],
    master: Master = "local[*]",
    yes: Yes = False,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Make index files safe, merge and rebuild what is due, remove what is old.

    Example: puffin-ann maintain demo.glove.words
    """
    from puffin_ann.lifecycle.runs import maintain as maintaining

    declarations, problems = _meant(name)
    require_pyspark()
    postponed: set[str] = set()
    unapproved: dict[str, BadInputError] = {}
    for declaration in declarations:
        try:
            if postpones(declaration, yes=yes, maintenance=True):
                postponed.add(declaration.name)
        except BadInputError as error:  # no reason to neglect the others
            unapproved[declaration.name] = error
    with on_spark(declarations[0], master) as runner:
        done = maintaining.maintain(
            declarations,
            run_id=own_run_id(),
            runner=runner,
            wait=not no_wait,
            tell=tell,
            postponed=postponed,
            left_out=unapproved,
        )
    if as_json:
        print_json(done)
    else:
        _show(done)
    if problems:
        raise DeclarationError("; ".join(map(str, (*problems, *unapproved.values()))))
    if unapproved:
        raise BadInputError("; ".join(map(str, unapproved.values())))


def _show(done: dict[str, Any]) -> None:
    for action in done["actions"]:
        say(action)
    for index, found in done["indexes"].items():
        line = f"{index}: {in_words(found['action'])}: {found['reason']}"
        say(line)
        if found["undone"]:
            say(f"{index}: left undone: {found['undone']}")


def _meant(name: str) -> "tuple[list[IndexDeclaration], tuple[DeclarationError, ...]]":
    """Return the declarations of a table, and problems of others; or the one of an index."""
    from puffin_ann.declaration import declarations_folders, read_declarations

    if "." not in name or name.endswith((".yaml", ".yml")):
        return [find_declared(name)], ()
    known = read_declarations(*declarations_folders())
    found = known.on(name)
    if not found:
        message = f"no index of table {name} is declared in {known.place}"
        raise DeclarationError("; ".join([message, *map(str, known.problems)]))
    return found, known.problems
