"""Moments as files and catalogs state them: milliseconds since 1970, which may be any number."""

import time
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field

LAST_MS = 253_402_300_799_000
"""The last second of the year 9999, with which calendars end."""

Moment = Annotated[int, Field(ge=0, le=LAST_MS)]


def now_ms() -> int:
    """Return the time, milliseconds since 1970."""
    return int(time.time() * 1000)


def as_time(at_ms: int, *, sep: Literal[" ", "T"] = " ") -> str:
    """Return a moment in UTC as people write it, to the second; a number if no calendar has it."""
    if not 0 <= at_ms <= LAST_MS:
        return f"{at_ms} ms"
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(sep=sep, timespec="seconds")


def as_utc(at_ms: int) -> str:
    """Return a moment as `as_time` does, and say that it is in UTC."""
    return as_time(at_ms).replace("+00:00", " UTC")
