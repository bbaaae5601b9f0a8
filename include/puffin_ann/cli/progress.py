"""The steps of a run, shown while they last."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from puffin_ann.cli.output import console
from puffin_ann.terminal import LiteralConsole

Step = Callable[[str], AbstractContextManager[None]]
"""Shows a step, by name, as long as the context lasts."""


@contextmanager
def steps(*, as_json: bool) -> Iterator[Step]:
    """Give what shows steps; where errors go, if the output is for machines."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=LiteralConsole(file=sys.stderr) if as_json else console,
    ) as progress:

        @contextmanager
        def step(name: str) -> Iterator[None]:
            task = progress.add_task(name, total=None)
            yield
            progress.update(task, total=1, completed=1)

        yield step
