"""Schedules, checked when a declaration is read: a wrong one would take a DAG out of Airflow.

Airflow's own check imports croniter, which is not installed without Airflow.
"""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

PRESETS = (
    "@once",
    "@continuous",
    "@hourly",
    "@daily",
    "@midnight",
    "@weekly",
    "@monthly",
    "@quarterly",
    "@yearly",
    "@annually",
)

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True)
class _Field:
    """One of the five fields: its numbers, names that stand for numbers, and words beside them."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    words: str = r"(?!)"


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31, words=r"\?|l"),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _DAYS, words=rf"\?|l[0-7]|([0-7]|{'|'.join(_DAYS)})#[1-5]"),
)

_ITEM = re.compile(r"(?:\*|(?P<first>[0-9a-z]+)(?:-(?P<last>[0-9a-z]+))?)(?:/(?P<step>\d{1,4}))?")


def check_schedule(text: str) -> str:
    """Return a schedule that Airflow takes: a preset, or a cron expression of five fields.

    Raises:
        ValueError: It is none; the message says which field is wrong, and what is allowed.
    """
    if text.startswith("@"):
        if text not in PRESETS:
            raise ValueError(f"presets are {', '.join(PRESETS)}")
        return text
    given = text.lower().split()
    if len(given) != len(_FIELDS):
        raise ValueError(
            f"a cron expression has five fields, {', '.join(field.name for field in _FIELDS)}, "
            f"such as '0 3 * * *', and this has {len(given)}; presets are {', '.join(PRESETS)}"
        )
    numbers = [_numbers(part, field) for part, field in zip(given, _FIELDS, strict=True)]
    _, _, days, months, _ = numbers
    if days and given[4] in ("*", "?"):
        longest = max(_LONGEST[month - 1] for month in months)
        if min(days) > longest:
            raise ValueError(f"there is no day {min(days)} in the months it names")
    return text


def _numbers(part: str, field: _Field) -> set[int]:
    """Return the numbers that a field names; none where it holds words such as `L`."""
    found: set[int] = set()
    words = False
    for item in part.split(","):
        if re.fullmatch(field.words, item):
            words = True
            continue
        found |= _of_item(item, field)
    return set() if words else found


def _of_item(item: str, field: _Field) -> set[int]:
    parts = _ITEM.fullmatch(item)
    if parts is None:
        raise ValueError(f"{item!r} is no {field.name}; allowed: {_allowed(field)}")
    step = int(parts["step"] or 1)
    if not 1 <= step <= field.high:
        raise ValueError(f"{item!r}: a step of the {field.name} is 1 to {field.high}")
    first = _number(parts["first"], field) if parts["first"] else field.low
    if parts["last"]:
        last = _number(parts["last"], field)
        if last < first and not (field.names == _DAYS and last == 0):
            raise ValueError(f"{item!r}: a range of the {field.name} goes from low to high")
        last = 7 if last < first else last
    else:
        last = first if parts["first"] and not parts["step"] else field.high
    return set(range(first, last + 1, step))


def _number(text: str, field: _Field) -> int:
    if text in field.names:
        return field.names.index(text) + (1 if field.names == _MONTHS else 0)
    number = int(text) if text.isdecimal() and len(text) <= 4 else -1
    if not field.low <= number <= field.high:
        raise ValueError(f"{text!r} is no {field.name}; allowed: {_allowed(field)}")
    return number


def _allowed(field: _Field) -> str:
    names = f", {field.names[0]} to {field.names[-1]}" if field.names else ""
    return f"{field.low} to {field.high}{names}, *, and of those lists, ranges and steps"


Schedule = Annotated[str, AfterValidator(check_schedule)]
"""A cron expression of five fields, or a preset of Airflow's."""
