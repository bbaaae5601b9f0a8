"""What is wrong with a condition that the parser cannot read, where it is an ordinary mistake.

The parser tells where it stopped, which is often far before the mistake.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*')
    | (?P<name>[A-Za-z_][\w$]*(?:\.[A-Za-z_][\w$]*)* | "(?:[^"\\]|\\.)*")
    | (?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<sign><=|>=|==|!=|<>|[<>=(),])""",
    re.VERBOSE | re.ASCII,
)
_COMPARISONS = frozenset(("<", "<=", ">", ">=", "=", "==", "!=", "<>"))
_DIFFERENT = ("!=", "<>")
_UNCOMPARED, _BOOLEANS = ("null", "nan"), ("true", "false")
_WHOLE, _POINT = "a whole number", "a number with a point"

_MOST_SHOWN = 30
"""Characters of a value."""

_Token = tuple[str, str]
"""Kind and content."""


def mistake_in(where: str) -> str | None:
    """Return what to write instead of what a text has wrong; None if that is nothing ordinary."""
    tokens = [(str(found.lastgroup), found[0]) for found in _TOKEN.finditer(where)]
    return _compared_with_null(tokens) or next(filter(None, map(_mixed, _lists(tokens))), None)


def _compared_with_null(tokens: Sequence[_Token]) -> str | None:
    """Tell how to ask for null and NaN, if something is compared with one."""
    for at, (kind, content) in enumerate(tokens):
        word = content.lower()
        if kind != "name" or word not in _UNCOMPARED:
            continue
        shown = "NaN" if word == "nan" else word
        before, after = tokens[max(at - 2, 0) : at], tokens[at + 1 : at + 3]
        if before and before[-1][1] in _COMPARISONS:
            sign, column = before[-1][1], before[0]
        elif after and after[0][1] in _COMPARISONS:
            sign, column = after[0][1], after[-1]
        else:
            continue
        name = column[1] if column[0] == "name" and column[1].lower() != word else "column"
        is_not = "is not" if sign in _DIFFERENT else "is"
        return f"{shown} is compared with nothing; write {name} {is_not} {word}"
    return None


def _lists(tokens: Sequence[_Token]) -> Iterator[list[_Token]]:
    """Give the members of each list."""
    members: list[_Token] | None = None
    for (_, before), token in pairwise(tokens):
        if token[1] == "(" and before.lower() == "in":
            members = []
        elif token[1] == ")" and members is not None:
            yield members
            members = None
        elif members is not None and token[0] != "sign":
            members.append(token)


def _mixed(members: Sequence[_Token]) -> str | None:
    """Tell which member of a list is no value, or of another kind than the first, if one is."""
    for kind, content in members:
        word = content.lower()
        if word in _UNCOMPARED:
            return f"{word} is in no list; write column in (...) or column is {word}"
        if kind == "name" and word not in _BOOLEANS:
            return f"{content} in the list is no value; text stands in single quotes: 'tea'"
    first, *others = [(member[1], _in_words(*member)) for member in members] or [("", "")]
    for content, kind in others:
        if kind == first[1]:
            continue
        told = (
            f"{_begun(content)} in the list is {kind}, and {_begun(first[0])} is {first[1]}; "
            "values in a list are of one kind"
        )
        if {kind, first[1]} == {_WHOLE, _POINT}:
            return f"{told}: write {_begun(content if kind == _WHOLE else first[0])}.0"
        return told
    return None


def _in_words(kind: str, content: str) -> str:
    """Return what a member of a list is."""
    if kind == "number":
        return _WHOLE if content.lstrip("+-").isdigit() else _POINT
    return "text" if kind == "text" else "true or false"


def _begun(content: str) -> str:
    return content if len(content) <= _MOST_SHOWN else f"{content[:_MOST_SHOWN]}..."
