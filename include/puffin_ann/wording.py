"""Words for people: counts, names that they mistype, and values that pydantic refuses."""

from collections.abc import Iterable
from difflib import get_close_matches

from pydantic_core import ErrorDetails

_OF_TYPES = {
    "int_type": "it should be a whole number",
    "int_parsing": "it should be a whole number",
    "int_from_float": "it should be a whole number",
    "float_type": "it should be a number",
    "float_parsing": "it should be a number",
    "bool_type": "it should be true or false",
    "bool_parsing": "it should be true or false",
    "string_type": "it should be text",
    "tuple_type": "it should be a list",
    "list_type": "it should be a list",
    "dict_type": "it should be a mapping",
    "model_type": "it should be a mapping of fields",
}


def counted(count: int, what: str) -> str:
    """Return a number of things in words: `1 row`, `2,000 rows`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def meant(unknown: str, known: Iterable[str]) -> str:
    """Return a question for the name that was probably meant, to follow one unknown; or nothing.

    Args:
        unknown: the name that was given.
        known: those that there are.
    """
    found = get_close_matches(unknown, list(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def names_known(unknown: str, names: Iterable[str], what: str) -> str:
    """Return words for the names that there are, and for the one that was probably meant.

    Args:
        unknown: the name that was given.
        names: those that there are.
        what: begins what is said of them, such as "declared are".
    """
    found = list(names)
    return f"{what}: {', '.join(found) or 'none'}{meant(unknown, found)}"


def refusal_in_words(item: ErrorDetails) -> str:
    """Return what is wrong with a value."""
    told = _OF_TYPES.get(item["type"]) or item["msg"].removeprefix("Value error, ")
    return told.replace("Input should", "it should").replace("String should", "it should")
