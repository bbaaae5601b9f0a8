"""Names that people mistype."""

from collections.abc import Iterable
from difflib import get_close_matches


def meant(unknown: str, known: Iterable[str]) -> str:
    """Return a question for the name that was probably meant, to follow one unknown; or nothing.

    Args:
        unknown: the name that was given.
        known: those that there are.
    """
    found = get_close_matches(unknown, list(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def known(unknown: str, names: Iterable[str], what: str) -> str:
    """Return words for the names that there are, and for the one that was probably meant.

    Args:
        unknown: the name that was given.
        names: those that there are.
        what: begins what is said of them, such as "declared are".
    """
    found = list(names)
    return f"{what}: {', '.join(found) or 'none'}{meant(unknown, found)}"
