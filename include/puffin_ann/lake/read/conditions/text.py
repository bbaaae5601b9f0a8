"""A condition as text, read by PyIceberg's parser."""

import re
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

from pyiceberg.expressions import BooleanExpression

from puffin_ann.errors import QueryError
from puffin_ann.lake.read.conditions.mistakes import mistake_in

if TYPE_CHECKING:
    from pyparsing import ParserElement

EXAMPLE = "price < 20 and category in ('tea', 'coffee')"
MOST_CHARACTERS = 100_000
"""Of a condition as text: the parser takes time and memory for each."""
_MOST_READ = (
    f"{MOST_CHARACTERS} at most are read as text; from Python, pass an expression of PyIceberg's, "
    "which may be of any length, such as In('id', [1, 2, 3])"
)
MOST_EXPONENT = 400
"""Of a number: beyond that of any that a column can have."""
MOST_DIGITS = 640
"""Of a whole number: Python may refuse to read more, and no column has nearly as many."""
MOST_QUOTED = 200
"""Characters of a condition in a message, of which one of thousands of values would be all."""

_TOKENS = re.compile(
    r"""'(?:[^']|'')*'   # text is left alone
    | (?P<quoted>"(?:[^"\\]|\\.)*") | (?P<name>[^\W\d][\w$]*)
    | (?<![\w.])(?P<whole>[0-9]+)(?![\w.])
    | (?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE](?P<exponent>[+-]?[0-9]+)(?![\w.]))
    | [0-9]+""",
    re.VERBOSE,
)


def shortened(text: str) -> str:
    """Return a condition, or a part of it, as messages have it: of a long one its beginning."""
    return text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}..."


def quoted(where: str) -> str:
    """Return a condition as messages quote it: of a long one its beginning."""
    return repr(shortened(where))


def nested_too_deep() -> QueryError:
    """Return what refuses a condition that takes more of Python's stack than there is."""
    return QueryError("where: the condition is nested too deep; use in (...) for lists")


@lru_cache(maxsize=64)  # one of sixteen comparisons takes milliseconds to read
def parsed(where: str) -> BooleanExpression:
    """Return a condition as an expression.

    Raises:
        QueryError: it cannot be read.
    """
    # Whoever asks without a condition, or with an expression, needs no parser.
    from pyparsing import ParseBaseException

    if len(where) > MOST_CHARACTERS:
        raise QueryError(f"where has {len(where)} characters; {_MOST_READ}")
    written = _TOKENS.sub(_as_parsed, where)
    if len(written) > MOST_CHARACTERS:
        raise QueryError(
            f"where has {len(written)} characters, powers of ten written out; {_MOST_READ}"
        )
    try:
        found = _grammar().parse_string(written, parse_all=True)[0]
    except ParseBaseException as error:
        raise QueryError(
            f"where {quoted(where)} cannot be read{_why(where, written, error.loc)}"
        ) from None
    except RecursionError:
        raise nested_too_deep() from None
    except (ValueError, TypeError):
        # What can be read and is refused all the same: the parser's own words are of its code.
        says = "like takes text that ends with its only %, such as 'begins%'"
        if "like" not in where.lower():
            says = f"it takes comparisons of a column with values: {EXAMPLE}"
        raise QueryError(f"where {quoted(where)} cannot be read: {says}") from None
    if not isinstance(found, BooleanExpression):
        raise QueryError(f"where {quoted(where)} is no condition; it takes comparisons: {EXAMPLE}")
    return found


@lru_cache(maxsize=1)
def _grammar() -> "ParserElement":
    """Return what PyIceberg's parser reads, and some that it does not.

    - True and false beside other parts, as in `id = 3 or true`: PyIceberg makes an expression of
      either only where it is the whole text.
    - Numbers of all kinds in a list, and numbers in quotes among them: `price in (1, 2.5, 'inf')`.
    - `not between`.
    """
    from pyiceberg.expressions import (
        And,
        GreaterThanOrEqual,
        In,
        LessThanOrEqual,
        Not,
        NotIn,
        parser,
    )
    from pyparsing import DelimitedList, Group, OpAssoc, ParseResults, Suppress, infix_notation

    def is_one_of(found: ParseResults) -> BooleanExpression:
        return In(term=found.column, literals=set(found.several))

    def is_none_of(found: ParseResults) -> BooleanExpression:
        return NotIn(term=found.column, literals=set(found.several))

    def is_outside(found: ParseResults) -> BooleanExpression:
        least = GreaterThanOrEqual(term=found.column, value=found.least)
        most = LessThanOrEqual(term=found.column, value=found.most)
        return Not(And(least, most))

    column, literal = parser.column, parser.literal
    value = parser.string | parser.decimal | parser.integer
    values = "(" + Group(DelimitedList(value))("several") + ")"
    bounds = literal("least") + parser.AND + literal("most")
    part = (
        parser.in_check  # the fastest with long lists
        | (column + parser.IN + values).set_parse_action(is_one_of)
        | (column + parser.NOT + parser.IN + values).set_parse_action(is_none_of)
        | (column + parser.NOT + parser.BETWEEN + bounds).set_parse_action(is_outside)
        | parser.predicate.copy().add_parse_action(parser.handle_always_expression)
    )
    joints = (
        (parser.NOT, 1, OpAssoc.RIGHT, parser.handle_not),
        (parser.AND, 2, OpAssoc.LEFT, parser.handle_and),
        (parser.OR, 2, OpAssoc.LEFT, parser.handle_or),
    )
    levels = [(Suppress(word), *rest) for word, *rest in joints]
    grammar: ParserElement = infix_notation(part, levels)  # type: ignore[no-untyped-call]
    return grammar.parse_with_tabs()  # else those in text become spaces


def _as_parsed(token: re.Match[str]) -> str:
    """Return a part of a text as the parser can read it.

    Names of other letters than A to Z it reads in double quotes alone, and of a column with points
    in its name what is between them; of numbers no powers of ten.

    Raises:
        QueryError: a number is beyond any, or has more digits than are read.
    """
    number, whole, name, quoted_name = token.group("number", "whole", "name", "quoted")
    if name is not None:
        return name if name.isascii() else f'"{name}"'
    if quoted_name is not None:
        return quoted_name if "\\" in quoted_name else quoted_name.replace(".", '"."')
    if whole is not None and len(whole) > MOST_DIGITS:
        raise QueryError(
            f"where: a whole number of {len(whole)} digits, {whole[:10]}..., is beyond any that a "
            f"column has; {MOST_DIGITS} digits at most are read"
        )
    if number is None:
        return token[0]
    if len(token["exponent"]) > 5 or abs(int(token["exponent"])) > MOST_EXPONENT:
        raise QueryError(
            f"where: {shortened(number)} is beyond any number; powers of ten go from "
            f"-{MOST_EXPONENT} to {MOST_EXPONENT}"
        )
    digits = format(Decimal(number), "f")
    return digits if "." in digits else f"{digits}.0"


def _why(where: str, written: str, stopped: int) -> str:
    """Return words for why, or from where on, a text cannot be read, and for what can.

    Args:
        where: the text.
        written: the same as the parser was given it.
        stopped: as for `_place`.
    """
    # Of what begins and does not end, no token is what it seems.
    mistake = None if where.count("'") % 2 else mistake_in(where)
    if mistake is not None:
        return f": {shortened(mistake)}"
    return (
        f"{_place(written, stopped)}; it takes comparisons of a column with values, text in single "
        f"quotes, names with other characters than letters, digits and _ in double ones, joined by "
        f"and, or and not: {EXAMPLE}"
    )


def _place(where: str, stopped: int) -> str:
    """Return words for where a text cannot be read.

    Args:
        where: the text.
        stopped: where the parser gave up: no more than its beginning if it could read nothing.
    """
    if where.count("'") % 2:
        return f": the text that begins at {where[where.rindex(chr(39)) :][:20]!r} has no end"
    rest = where[stopped:].strip()
    if rest:
        return f" from {rest[:20]!r} on"
    return " at its end" if where.strip() else ": it is empty"
