"""What is wrong with a condition that the parser cannot read, where it is an ordinary mistake.

The parser tells where it stopped, which is often far before the mistake.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*')
    | (?P<name>[^\W\d][\w$]*(?:\.[^\W\d][\w$]*)* | "(?:[^"\\]|\\.)*")
    | (?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<sign><=|>=|==|!=|<>|[<>=(),])""",
    re.VERBOSE,
)
_UNQUOTED = re.compile(r"""(?:(?!\.")[^\s<>=!(),'"])+""")
"""What is between spaces and signs: meant to be a name, if it begins as one."""
_BACKTICKS = re.compile(r"`([^`]+)`")
_READ_TEXT = re.compile(r"'(?:[^'\n\r\\]|''|\\(?:[^x]|x[0-9a-fA-F]+))*'")
"""Text as PyIceberg's parser reads it."""
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COMPARISONS = frozenset(("<", "<=", ">", ">=", "=", "==", "!=", "<>"))
_DIFFERENT = ("!=", "<>")
_UNCOMPARED, _BOOLEANS, _INFINITY = ("null", "nan"), ("true", "false"), ("inf", "infinity")

_MOST_SHOWN = 30
"""Characters of a value."""

_Token = tuple[str, str]
"""Kind and content."""


def mistake_in(where: str) -> str | None:
    """Return what to write instead of what a text has wrong; None if that is nothing ordinary."""
    found = list(_TOKEN.finditer(where))
    tokens = [(str(token.lastgroup), token[0]) for token in found]
    return (
        _unread_text(tokens)
        or _compared_with_null(tokens)
        or _compared_with_name(tokens)
        or _chained(tokens)
        or next(filter(None, map(_unlisted, _lists(tokens))), None)
        or _misspelt_name(where, found)
    )


def _unread_text(tokens: Sequence[_Token]) -> str | None:
    """Tell of text that the parser ends elsewhere, or nowhere."""
    for kind, content in tokens:
        if kind == "text" and not _READ_TEXT.fullmatch(content):
            return (
                f"{_begun(content)!r} has a line break, or a backslash that escapes what follows; "
                "such text is not read; from Python, pass an expression of PyIceberg's, such as "
                "EqualTo('word', 'C:\\\\')"
            )
    return None


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


def _unlisted(members: Sequence[_Token]) -> str | None:
    """Tell which member of a list is no value, or not of the kind of others, if one is."""
    for kind, content in members:
        word = content.lower()
        if word in _UNCOMPARED:
            return f"{word} is in no list; write column in (...) or column is {word}"
        if kind == "name" and word not in _BOOLEANS:
            return f"{_begun(content)} in the list is no value; {_as_value(content)}"
    truths = [content for kind, content in members if kind == "name"]
    others = [content for kind, content in members if kind != "name"]
    if truths and others:
        return (
            f"{truths[0]} in the list is true or false, and {_begun(others[0])} is neither; no "
            "column has both"
        )
    return None


def _compared_with_name(tokens: Sequence[_Token]) -> str | None:
    """Tell what is compared with a column, and is no value."""
    for before, sign, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if sign[1] in _COMPARISONS and all(
            kind == "name" and content.lower() not in _BOOLEANS for kind, content in (before, after)
        ):
            return (
                f"{_begun(after[1])} is compared with {_begun(before[1])}, and is no value; "
                f"{_as_value(after[1])}"
            )
    return None


def _chained(tokens: Sequence[_Token]) -> str | None:
    """Tell how to write two comparisons that share what is between them."""
    for (_, first), (_, sign), (kind, middle), (_, other), (_, last) in zip(
        tokens, tokens[1:], tokens[2:], tokens[3:], tokens[4:], strict=False
    ):
        if sign in _COMPARISONS and other in _COMPARISONS:
            first, middle, last = _begun(first), _begun(middle), _begun(last)
            instead = "each by itself, joined by and"
            if kind == "name":
                instead = (
                    f"{middle} {_MIRRORED.get(sign, sign)} {first} and {middle} {other} {last}"
                )
            return f"{first} {sign} {middle} {other} {last} is two comparisons; write {instead}"
    return None


def _as_value(name: str) -> str:
    """Return how to write what is read as a name, and was meant to be a value."""
    if name.lower() in _INFINITY:
        return "infinity stands in single quotes: 'inf', '-inf'"
    return f"text stands in single quotes: '{_begun(name.strip(chr(34)))}'"


def _misspelt_name(where: str, tokens: Sequence[re.Match[str]]) -> str | None:
    """Tell of a name that cannot be read as it is written."""
    backticks = _BACKTICKS.search(where)
    if backticks:
        return f'names are quoted by double quotes, not by backticks: "{_begun(backticks[1])}"'
    for token, following in pairwise(tokens):
        names = token[0], following[0]
        if token.end() == following.start() and all(name.startswith('"') for name in names):
            name = f'{names[0][1:-1]}"{names[1][1:-1]}'
            return (
                f"a name with a double quote in it is not read in text; from Python, pass an "
                f"expression of PyIceberg's, such as EqualTo({_begun(name)!r}, 1)"
            )
    for token in tokens:
        written = _UNQUOTED.match(where, token.start())
        if token.lastgroup == "name" and written and written.end() > token.end():
            return (
                f"{_begun(written[0])} is read as no name; one with other characters than letters, "
                f'digits and _ stands in double quotes: "{_begun(written[0])}"'
            )
    return None


def _begun(content: str) -> str:
    return content if len(content) <= _MOST_SHOWN else f"{content[:_MOST_SHOWN]}..."
