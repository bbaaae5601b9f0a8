"""What the command line prints: tables for people, JSON for machines."""

import base64
import json
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, TextIO
from uuid import UUID

import typer

from puffin_ann.errors import PuffinAnnError
from puffin_ann.terminal import LiteralConsole, printable

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table, as catalog.namespace.table.")
]

console = LiteralConsole()

NOTHING = "nothing to do"

WIDE = 150
"""Columns of a terminal that tables of many figures need; narrower ones are shown lines instead."""


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be printed as JSON")


def print_json(value: Any) -> None:
    """Print a value as indented JSON; bytes as base64."""
    typer.echo(json.dumps(value, indent=2, default=_plain))


def errors_to(stream: TextIO, error: PuffinAnnError) -> None:
    """Print an error as one message, without a traceback."""
    told = f"{error}; {error.aside}" if error.aside else str(error)
    LiteralConsole(file=stream, soft_wrap=True, highlight=False).print(
        f"error: {told}", style="red"
    )


def in_words(action: str) -> str:
    """Return what a run does, in words for people; JSON and records have the action's name."""
    return NOTHING if action == "none" else action


def say(line: str) -> None:
    """Print a line of text as it is, however long."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning where errors go, so that output for machines stays as it is."""
    LiteralConsole(stderr=True, soft_wrap=True, highlight=False).print(
        f"warning: {text}", style="yellow"
    )


def tell(message: str) -> None:
    """Print what goes on, where errors go."""
    typer.echo(printable(message), err=True)
