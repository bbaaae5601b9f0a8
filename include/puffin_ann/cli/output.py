"""What the command line prints: tables for people, JSON for machines."""

import base64
import io
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, TextIO
from uuid import UUID

import typer

from puffin_ann.errors import BadInputError, EnvironmentProblemError, PuffinAnnError
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
    """Print a value as indented JSON: bytes as base64, NaN and infinities as null.

    JSON has no such numbers (RFC 8259), and what Python would write for them few others read.
    """
    typer.echo(json.dumps(_finite(value), indent=2, default=_plain, allow_nan=False))


def _finite(value: Any) -> Any:
    """Return a value with None where numbers are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value


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


class _Output(io.TextIOWrapper):
    """The standard output, of which errors are told from those of other files."""

    def write(self, text: str, /) -> int:
        with _written():
            return super().write(text)

    def flush(self) -> None:
        with _written():
            super().flush()


@contextmanager
def _written() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stdout = None  # Python would try again when it ends
        reason = error.strerror or error
        raise EnvironmentProblemError(f"output cannot be written: {reason}") from None


@contextmanager
def output_arriving() -> Iterator[None]:
    """Have all that the body prints be written at its end, or say why it cannot be.

    Raises:
        EnvironmentProblemError: it cannot be written, as on a full disk.
        SystemExit: whoever was to read it has gone.
    """
    there = sys.stdout
    if type(there) is io.TextIOWrapper:  # and not what a test puts in its place
        sys.stdout = _Output(
            there.buffer,
            encoding=there.encoding,
            errors=there.errors,
            line_buffering=there.line_buffering,
            write_through=there.write_through,
        )
    try:
        yield
    finally:
        if sys.stdout is not None:
            _flush()


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None
        sys.exit(1)


@contextmanager
def unless_nobody_answers(told: str) -> Iterator[None]:
    """Tell what to do where a question meets the end of the input, or a closed one.

    An interrupt stays one, though Typer raises the same for both.
    """
    try:
        yield
    except typer.Abort as error:
        if not isinstance(error.__context__, EOFError):
            raise
        console.print()  # the question's line is still open
        raise BadInputError(told) from None
    except RuntimeError:
        if sys.stdin is not None:
            raise
        console.print()
        raise BadInputError(told) from None
    except UnicodeDecodeError:
        raise BadInputError(told) from None
