"""The steps of a run, shown while they last, and on a terminal only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TextIO

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from puffin_ann.cli.interrupts import tell_interrupted
from puffin_ann.cli.output import console
from puffin_ann.terminal import LiteralConsole

Step = Callable[[str], AbstractContextManager[None]]
"""Shows a step, by name, as long as the context lasts."""

PUBLISH = "publish"
"""The step by which what a run made becomes part of the table."""


@contextmanager
def steps(*, as_json: bool) -> Iterator[Step]:
    """Give what shows steps; where errors go, if the output is for machines or no terminal."""
    is_on_output = not as_json and _is_terminal(sys.stdout)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=console if is_on_output else LiteralConsole(file=sys.stderr),
        disable=not is_on_output and not _is_terminal(sys.stderr),
    ) as progress:

        @contextmanager
        def step(name: str) -> Iterator[None]:
            task = progress.add_task(name, total=None)
            with _told_if_interrupted() if name == PUBLISH else nullcontext():
                yield
            progress.update(task, total=1, completed=1)

        yield step


@contextmanager
def _told_if_interrupted() -> Iterator[None]:
    """Have an interrupt during the step that publishes, or after it, say what is published."""
    tell_interrupted(
        "it came while the run published: 'puffin-ann status' shows whether the new version is "
        "published, whole, or not at all"
    )
    try:
        yield
    except Exception:  # what was not published may be planned again
        tell_interrupted("")
        raise
    tell_interrupted("what the run made is published: the interrupt came after that")


def _is_terminal(stream: TextIO | None) -> bool:
    """Ask the stream: a console calls a pipe a terminal where `FORCE_COLOR` is set."""
    return stream is not None and stream.isatty()
