"""Print what others wrote exactly as it is: names, properties and messages may hold anything.

A terminal obeys control characters: escape sequences set its title or its clipboard, and marks of
direction let a name read as another. Rich obeys markup in square brackets and names of emoji. Here
the first are replaced and the second printed as they are, wherever they come from.
"""

import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

FEWEST_COLUMNS = 20
"""Of a terminal; `COLUMNS` that says fewer, such as 0, says nothing."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_OBEYED = re.compile(
    # C0 but for tab and line feed, delete and C1; then what has no width and turns the direction,
    # ends lines, or annotates; then halves of characters, which no stream can encode.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb"
    "\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return a text in which a terminal finds nothing to obey."""
    return _OBEYED.sub(REPLACEMENT, text.replace("\r\n", "\n"))


def _believable_environment() -> Mapping[str, str]:
    """Return the environment, without a width of the terminal in which nothing can be printed."""
    told = os.environ.get("COLUMNS", "")
    if re.fullmatch("[0-9]{1,5}", told) and int(told) >= FEWEST_COLUMNS:
        return os.environ
    return {name: value for name, value in os.environ.items() if name != "COLUMNS"}


class LiteralConsole(Console):
    """A console that prints every text literally, in tables and progress bars, too."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, _environ=_believable_environment(), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Give the segments of what is printed; Rich's own control sequences are left alone."""
        for segment in super().render(renderable, options):
            if segment.control or not _OBEYED.search(segment.text):
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


class LiteralFormatter(logging.Formatter):
    """Formats log records for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, and its traceback if it has one."""
        return printable(super().format(record))
