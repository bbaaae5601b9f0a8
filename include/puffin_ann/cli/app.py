"""The application: its commands, its options, and how it fails."""

import logging
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from puffin_ann.cli.commands.reading.history import history
from puffin_ann.cli.commands.reading.inspect import inspect
from puffin_ann.cli.commands.reading.list import list_
from puffin_ann.cli.commands.reading.search import search
from puffin_ann.cli.commands.reading.status import status
from puffin_ann.cli.commands.reading.warm import warm
from puffin_ann.cli.commands.runs.build import build
from puffin_ann.cli.commands.runs.evaluate import evaluate
from puffin_ann.cli.commands.runs.maintain import maintain
from puffin_ann.cli.commands.runs.plan import plan
from puffin_ann.cli.commands.runs.refresh import refresh
from puffin_ann.cli.commands.setup.check import check
from puffin_ann.cli.commands.setup.compile import compile
from puffin_ann.cli.commands.setup.doctor import doctor
from puffin_ann.cli.commands.setup.init import init
from puffin_ann.cli.commands.setup.quickstart import quickstart
from puffin_ann.cli.commands.setup.size import size
from puffin_ann.cli.commands.upkeep.clean import clean
from puffin_ann.cli.commands.upkeep.drop import drop
from puffin_ann.cli.commands.upkeep.gather import gather
from puffin_ann.cli.commands.upkeep.rename import rename
from puffin_ann.cli.output import errors_to, output_arriving, warn
from puffin_ann.cli.spark_session import is_for_terminal
from puffin_ann.cli.variables import misspelled_settings
from puffin_ann.errors import PuffinAnnError
from puffin_ann.redaction import REDACTION, redact
from puffin_ann.terminal import LiteralFormatter, printable
from puffin_ann.version import __version__
from puffin_ann.wording import refusal_in_words

PROGRAM = "puffin-ann"
"""Also of whoever calls it by `python -m puffin_ann`."""


UsageError: Any = typer.BadParameter.__mro__[1]
"""What Typer raises for arguments that are too many, which it has no public name for."""


class _Commands(TyperGroup):
    """Commands whose options are refused in the words of this program, not of pydantic.

    Where an argument is missing, or there is one too many, an example is told: commands that work
    on what is declared take the name of an index, those that work on a table take that before it.
    """

    def invoke(self, ctx: Any) -> Any:
        """Carry out the command that was given."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            if isinstance(error.__cause__, ValidationError):
                (found, *_) = error.__cause__.errors()
                value = "" if found["type"] == "value_error" else f"{found['input']!r}: "
                error.message = value + refusal_in_words(found).rstrip(".")
            told = error.format_message()
            example = _example_of(error.ctx)
            if example and told.startswith(("Missing argument", "Got unexpected extra argument")):
                raise UsageError(f"{told.rstrip('.')}; for example: {example}", error.ctx) from None
            raise


def _example_of(context: Any) -> str:
    """Return the first example in the help of a command; empty if there is none."""
    helped = "" if context is None else context.command.help or ""
    example = helped.partition("Example: ")[2].partition("\n\n")[0]
    return " ".join(example.replace("\\", " ").split())


LOGGED = "%(levelname)s %(name)s: %(message)s"

app = typer.Typer(
    cls=_Commands,
    name=PROGRAM,
    help="Vector indexes that live inside Apache Iceberg tables.\n\n"
    "Catalogs are those of PyIceberg's own configuration (.pyiceberg.yaml or PYICEBERG_*).\n\n"
    "Exit codes: 0 done, 2 bad input, 3 not found, 4 the table moved on or has rows outside the "
    "index that must not be scanned, 5 recall under the target, 6 something outside is missing, 7 "
    "broken bytes, 8 problems found, 9 another run works on the index, 1 anything else.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
SUMMARIES: dict[Callable[..., None], str] = {
    quickstart: "Make a table and an index of a Parquet file, and search it.",
    list_: "List tables with their vector columns and indexes.",
    init: "Write the declaration of an index for a table.",
    check: "Check declarations, and with --tables what they name.",
    build: "Build a declared index with Spark, and publish it.",
    plan: "Show what a refresh would do to each shard.",
    refresh: "Bring an index up to date with its table, or build it.",
    search: "Find the rows nearest to a vector, or to a row.",
    warm: "Bring all shards of an index to the cache on local disk.",
    status: "Show the indexes of a table: coverage, recall, bytes.",
    history: "Show the runs that published an index, and evaluations.",
    inspect: "Show what is in a Puffin file.",
    size: "Predict the bytes of an index, of its cache and build.",
    doctor: "Find what is wrong with a table's indexes; --fix repairs.",
    clean: "Remove superseded versions, and what failed runs left.",
    drop: "Take an index out of its table.",
    rename: "Publish an index under the new name of its declaration.",
    gather: "Publish an index again as one file, without building it.",
    maintain: "Do what upkeep of a table's indexes is due.",
    evaluate: "Measure the recall of a published index.",
    compile: "Compile kernels ahead of their first use.",
}
"""Commands in the order of the help, and what it says of each: no more than fits 80 columns."""

for command, summary in SUMMARIES.items():
    app.command(name=command.__name__.rstrip("_"), short_help=summary)(command)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"puffin-ann {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print and leave.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what is done.")] = False,
) -> None:
    """Set up what all commands share."""
    sys.excepthook = _tell_defect  # not before: Typer has set its own when it was called
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(LiteralFormatter(LOGGED))
        handler.addFilter(is_for_terminal)
        handler.addFilter(REDACTION)  # what others log, too
    # Whoever waits for a kernel that is compiled is told so.
    logging.getLogger("puffin_ann.kernels").setLevel(logging.WARNING)
    for name, meant in misspelled_settings().items():
        warn(f"{name} sets nothing; did you mean {meant}?")
    if verbose:
        logging.getLogger("puffin_ann").setLevel(logging.INFO)


def _tell_defect(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Tell an error that nobody raised on purpose in full, but for the secrets that it quotes."""
    told = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(printable(redact(told)))


def run() -> None:
    """Run the command line; errors raised on purpose become one line and an exit code."""
    try:
        with output_arriving():
            app(prog_name=PROGRAM)
    except PuffinAnnError as error:
        with suppress(OSError):  # where errors cannot be written either, the exit code tells
            errors_to(sys.stderr, error)
        sys.exit(error.exit_code)
