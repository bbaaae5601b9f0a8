"""How our Spark applications speak: lines that can be told from those of Spark and the JVM.

Whoever submits an application sees one stream, and wants in its own log what we say of the work.
"""

import logging
import re

FORMAT = "puffin-ann %(levelname)s %(message)s"
"""Of log records."""

FAILURE = "error: "
"""What the line begins with that says why an application failed; the last one of ours."""

_RECORD = re.compile(r"^puffin-ann (DEBUG|INFO|WARNING|ERROR|CRITICAL) (.*)$")


def record_in(line: str) -> tuple[int, str] | None:
    """Return the level and the message of a log record of ours; None of another line."""
    found = _RECORD.match(line.strip())
    return (logging.getLevelNamesMapping()[found[1]], found[2]) if found else None


def failure_in(line: str) -> str:
    """Return what a line says of the application's failure; empty of another line."""
    text = line.strip()
    return text.removeprefix(FAILURE) if text.startswith(FAILURE) else ""
