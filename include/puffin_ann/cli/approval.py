"""Ask at the terminal before a build that passes a bound of its declaration."""

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
    if not _is_approved(declaration, expected):
        raise BadInputError(
            f"nothing was built: index {declaration.name!r} would take {expected.asks}; give --yes "
            "to build it without being asked"
        )


def postpones_build(declaration: IndexDeclaration, *, yes: bool, maintenance: bool = False) -> bool:
    """Say whether a build that is due waits, since it has to be approved and was not."""
    if yes or declaration.build.approve_above is None:
        return False
    from puffin_ann.lifecycle.runs.expect_build import expect_due_build

    expected = expect_due_build(declaration, maintenance=maintenance)
    if _is_approved(declaration, expected):
        return False
    tell(f"{declaration.name}: the build that is due is not done: {expected.asks}")
    return True


def _is_approved(declaration: IndexDeclaration, expected: "ExpectedBuild") -> bool:
    if not expected.asks:
        return True
    tell(f"{declaration.name}: build: {expected.reason}")
    tell(f"expected: {expected.asks}")
    try:
        with unless_nobody_answers("nobody answers"):
            return typer.confirm(f"Build {declaration.name}?", default=False, err=True)
    except BadInputError:
        return False
