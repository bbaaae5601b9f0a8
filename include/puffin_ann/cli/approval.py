"""Ask at the terminal before work on whole shards that passes a bound of its declaration."""

from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.cli.output import tell, unless_nobody_answers
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import BadInputError

if TYPE_CHECKING:
    from puffin_ann.lifecycle.runs.expect_build import ExpectedBuild

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask, whatever build.approve_above says.")]


def require_approval(declaration: IndexDeclaration, *, force: bool, yes: bool) -> None:
    """Have a build approved, if it has to be.

    Raises:
        BadInputError: it was not.
    """
    if yes or declaration.build.approve_above is None:
        return
    from puffin_ann.lifecycle.runs.expect_build import expect_build

    expected = expect_build(declaration, overrides={"force": force})
    if not _is_approved(declaration, expected, "build"):
        raise _not_built(declaration, expected)


def postpones(
    declaration: IndexDeclaration, *, yes: bool, maintenance: bool = False, force: bool = False
) -> bool:
    """Say whether a build, merge or rebuild that is due waits, for want of approval.

    Raises:
        BadInputError: it is the first build, without which there is nothing to refresh.
    """
    if yes or declaration.build.approve_above is None:
        return False
    from puffin_ann.lifecycle.runs.expect_build import expect_due

    expected = expect_due(declaration, maintenance=maintenance, force=force)
    if _is_approved(declaration, expected, "refresh"):
        return False
    if expected.is_first:
        raise _not_built(declaration, expected)
    tell(f"{declaration.name}: masks and deltas are all that is done: {expected.asks}")
    return True


def _not_built(declaration: IndexDeclaration, expected: "ExpectedBuild") -> BadInputError:
    return BadInputError(
        f"nothing was built: index {declaration.name!r} would take {expected.asks}; give --yes "
        "to build it without being asked"
    )


def _is_approved(declaration: IndexDeclaration, expected: "ExpectedBuild", what: str) -> bool:
    if not expected.asks:
        return True
    tell(f"{declaration.name}: {what}: {expected.reason}")
    tell(f"expected: {expected.asks}")
    try:
        with unless_nobody_answers("nobody answers"):
            question = f"{what.capitalize()} {declaration.name}?"
            return typer.confirm(question, default=False, err=True)
    except BadInputError:
        return False
