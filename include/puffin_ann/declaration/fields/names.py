"""What an index and its table may be called: names become parts of paths, of DAG ids and of SQL."""

import re

from puffin_ann.errors import BadInputError

NAME = r"^[a-z][a-z0-9_]{0,62}$"
TABLE_NAME = r"^[^.\s]+(\.[^.\s]+){2,}$"

LONGEST_SHOWN = 80


def is_name(text: str) -> bool:
    """Tell whether an index may have a name."""
    return re.fullmatch(NAME[1:-1], text) is not None


def check_name(text: str) -> str:
    """Return the name of an index that a person gave, or a file.

    Raises:
        BadInputError: no index can have it.
    """
    if is_name(text):
        return text
    shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
    raise BadInputError(
        f"{shown!r} is no name of an index: a lower-case letter, and up to 62 more of those, "
        "digits or '_'"
    )


def as_name(text: str) -> str:
    """Return a name of an index made of any text."""
    plain = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return (plain if plain[:1].isalpha() else f"index_{plain}")[:63].rstrip("_")
