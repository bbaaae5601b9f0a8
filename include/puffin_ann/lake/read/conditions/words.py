"""Say what an expression asks, and values that it compares, as people write them.

PyIceberg has dates and times as numbers since 1970, and shows them so.
"""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from pyiceberg.expressions import (
    BooleanExpression,
    BoundPredicate,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Reference,
    SetPredicate,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import DateLiteral, Literal, TimeLiteral, TimestampLiteral
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, visit

_SIGNS: dict[type[Any], str] = {
    EqualTo: "=",
    NotEqualTo: "!=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    StartsWith: "like",
    NotStartsWith: "not like",
    In: "in",
    NotIn: "not in",
    IsNull: "is null",
    NotNull: "is not null",
    IsNaN: "is nan",
    NotNaN: "is not nan",
}

_EPOCH = datetime(1970, 1, 1)


_MOMENTS = (DateLiteral, TimeLiteral, TimestampLiteral)


def value_in_words(literal: Literal[Any]) -> str:
    """Return a value as a condition has it, a moment without the quotes that stand around it."""
    value = literal.value
    if isinstance(literal, _MOMENTS):
        return _moment_in_words(literal)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, Decimal) else repr(value)


def _moment_in_words(literal: DateLiteral | TimeLiteral | TimestampLiteral) -> str:
    is_date = isinstance(literal, DateLiteral)
    try:
        since = timedelta(days=literal.value) if is_date else timedelta(microseconds=literal.value)
        moment = _EPOCH + since
    except OverflowError:  # made by hand, of a year that Python has none of
        return repr(literal.value)
    if is_date:
        return moment.date().isoformat()
    return (moment.time() if isinstance(literal, TimeLiteral) else moment).isoformat()


def expression_in_words(expression: BooleanExpression) -> str:
    """Return an expression as the text of a condition has it."""
    return visit(expression, _InWords()).text


class _Words(NamedTuple):
    """Text of an expression, and what joins its parts, if anything does."""

    text: str
    joined_by: str = ""

    def within(self, joint: str) -> str:
        """Return the text as a part of what is joined so: in parentheses where that matters."""
        return self.text if self.joined_by in ("", joint) else f"({self.text})"


class _InWords(BooleanExpressionVisitor[_Words]):
    def visit_true(self) -> _Words:
        return _Words("true")

    def visit_false(self) -> _Words:
        return _Words("false")

    def visit_not(self, child_result: _Words) -> _Words:
        return _Words(f"not {child_result.within('not')}")

    def visit_and(self, left_result: _Words, right_result: _Words) -> _Words:
        return _joined(left_result, "and", right_result)

    def visit_or(self, left_result: _Words, right_result: _Words) -> _Words:
        return _joined(left_result, "or", right_result)

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> _Words:
        term = predicate.term
        column = term.name if isinstance(term, Reference) else str(term)
        asks = f"{column} {_SIGNS.get(type(predicate), type(predicate).__name__)}"
        if isinstance(predicate, SetPredicate):
            values = sorted(map(_as_text, predicate.literals))
            return _Words(f"{asks} ({', '.join(values)})")
        if isinstance(predicate, StartsWith | NotStartsWith):
            return _Words(f"{asks} {str(predicate.literal.value) + '%'!r}")
        if isinstance(predicate, LiteralPredicate):
            return _Words(f"{asks} {_as_text(predicate.literal)}")
        return _Words(asks)

    def visit_bound_predicate(self, predicate: BoundPredicate) -> _Words:
        return _Words(str(predicate))


def _as_text(literal: Literal[Any]) -> str:
    shown = value_in_words(literal)
    return f"'{shown}'" if isinstance(literal, _MOMENTS) else shown


def _joined(left: _Words, joint: str, right: _Words) -> _Words:
    return _Words(f"{left.within(joint)} {joint} {right.within(joint)}", joint)
