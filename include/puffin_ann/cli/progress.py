"""The steps of a run, shown while they last, and on a terminal only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TextIO

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from puffin_ann.cli.output import console
from puffin_ann.terminal import LiteralConsole

Step = Callable[[str], AbstractContextManager[None]]
"""Shows a step, by name, as long as the context lasts."""


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
            yield
            progress.update(task, total=1, completed=1)

        yield step


def _is_terminal(stream: TextIO | None) -> bool:
    """Ask the stream: a console calls a pipe a terminal where `FORCE_COLOR` is set."""
    return stream is not None and stream.isatty()
