"""What commands that write an index share: one of them at a time, the others wait or leave."""

from contextlib import AbstractContextManager
from typing import Annotated

import typer

from puffin_ann.cli.output import tell

NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait",
        help="Leave with exit code 9 if another run works on the index, instead of waiting for it.",
    ),
]


def own_run_id() -> str:
    """Return an id for the run of this command, unlike that of any other."""
    from puffin_ann.lifecycle.runtime.run_ids import new_run_id

    return new_run_id("cli")


def writing(
    table: str, index: str, run_id: str, purpose: str, *, no_wait: bool
) -> AbstractContextManager[None]:
    """Hold the lease on an index; what is waited for is shown on the standard error stream.

    Whatever is to be done has to be planned inside: the run waited for may have done it.
    """
    from puffin_ann.lifecycle.runtime import leases

    return leases.writing(table, index, run_id, purpose, wait=not no_wait, tell=tell)
