"""JSON that others may have written, read as if by an enemy, and the values taken from it.

What readers could take differently is refused: a name given twice, and numbers that JSON has not.
Whatever is wrong is a `ValueError`, nesting that Python cannot follow included.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

_LONG = range(-(2**63), 2**63)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is given twice")
    return result


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is a number beyond all bounds")
    return number


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant
)


def parse(text: str | bytes) -> Any:
    """Return the value of a JSON text; bytes are UTF-8.

    Raises:
        ValueError: it is none, gives a name twice, has a number that is none or beyond all bounds,
            or is nested too deeply.
    """
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode("utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def first_value(text: str, at: int) -> tuple[Any, int]:
    """Return the value that begins at a place in a text, and the place behind it.

    Raises:
        ValueError: as `parse` does, or none begins there.
    """
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_long(value: object) -> bool:
    """Tell whether a value is a 64-bit integer."""
    return isinstance(value, int) and not isinstance(value, bool) and value in _LONG


def long_of(value: object) -> int:
    """Return a value that has to be a 64-bit integer; ValueError if it is none."""
    if not isinstance(value, int) or not is_long(value):
        raise ValueError(f"{show(value)} is not a 64-bit integer")
    return value


def text_of(value: object) -> str:
    """Return a value that has to be a string; ValueError if it is none."""
    if not isinstance(value, str):
        raise ValueError(f"{show(value)} is not a string")
    return value


def object_of(value: object) -> Mapping[str, Any]:
    """Return a value that has to be a JSON object; ValueError if it is none."""
    if not isinstance(value, dict):
        raise ValueError(f"{show(value)} is not a JSON object")
    return value


def objects_of(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a field that has to be a list of JSON objects; none where it is absent or null.

    Raises:
        ValueError: it is something else.
    """
    found = document.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ValueError(f"`{name}` is not a list of JSON objects")
    return found


def show(value: object) -> str:
    """Return a value for a message, cut short; one that is nested is not looked into."""
    if isinstance(value, dict | list):
        return "a JSON object" if isinstance(value, dict) else "a list"
    text = repr(value) if not isinstance(value, int) or is_long(value) else "a huge number"
    return text if len(text) <= 80 else f"{text[:80]}…"
