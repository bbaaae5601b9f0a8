"""Random conditions with what they mean, told without the library and without PyIceberg."""

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)

Row = Mapping[str, Any]
Meaning = Callable[[Row], bool | None]
"""Whether a row satisfies a condition: true, false, or unknown, as a comparison with null is."""

COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: lambda one, other: one == other,
    NotEqualTo: lambda one, other: one != other,
    LessThan: lambda one, other: one < other,
    LessThanOrEqual: lambda one, other: one <= other,
    GreaterThan: lambda one, other: one > other,
    GreaterThanOrEqual: lambda one, other: one >= other,
}
OPPOSITE: dict[type, type] = {
    EqualTo: NotEqualTo,
    NotEqualTo: EqualTo,
    LessThan: GreaterThanOrEqual,
    GreaterThanOrEqual: LessThan,
    GreaterThan: LessThanOrEqual,
    LessThanOrEqual: GreaterThan,
}


def a_condition(
    random: Random,
    values: Mapping[str, Sequence[Any]],
    literal: Callable[[Any], Any] = lambda value: value,
    depth: int = 2,
) -> tuple[BooleanExpression, Meaning]:
    """Draw a condition on columns, given by values to compare them with.

    Args:
        random: draws.
        values: by column; those of text are asked for their beginnings, too.
        literal: makes of a value what an expression takes.
        depth: of and, or, not.
    """
    if depth and random.random() < 0.6:
        one, says = a_condition(random, values, literal, depth - 1)
        other, says_other = a_condition(random, values, literal, depth - 1)
        if random.random() < 0.5:
            return And(one, other), lambda row: _both(says(row), says_other(row))
        return Or(one, other), lambda row: _either(says(row), says_other(row))
    name = random.choice(sorted(values))
    expression, says, refutes = _a_comparison(random, name, values[name], literal)
    return (Not(expression), refutes) if random.random() < 0.2 else (expression, says)


def _a_comparison(
    random: Random, name: str, values: Sequence[Any], literal: Callable[[Any], Any]
) -> tuple[BooleanExpression, Meaning, Meaning]:
    """Return a comparison, what it means, and what its negation means."""
    kind = random.randrange(8)
    if kind == 0:
        return IsNull(name), lambda row: row[name] is None, lambda row: row[name] is not None
    if kind == 1:
        return NotNull(name), lambda row: row[name] is not None, lambda row: row[name] is None
    if kind == 2 and isinstance(values[0], float):
        said, refuted = _told(name, math.isnan), _told(name, lambda value: not math.isnan(value))
        if random.random() < 0.5:
            return IsNaN(name), said, refuted
        return NotNaN(name), refuted, said
    if kind == 3:
        chosen = random.sample(list(values), min(len(values), 3))
        among = _told(name, lambda value: value in chosen)
        others = _told(name, lambda value: value not in chosen)
        literals = [literal(value) for value in chosen]
        if random.random() < 0.5:
            return In(name, literals), among, others
        return NotIn(name, literals), others, among
    value = random.choice(list(values))
    if kind == 4 and isinstance(value, str):
        begin = value[: random.randint(1, 3)]
        begins = _told(name, lambda found: found.startswith(begin))
        differs = _told(name, lambda found: not found.startswith(begin))
        if random.random() < 0.5:
            return StartsWith(name, begin), begins, differs
        return NotStartsWith(name, begin), differs, begins
    compare = random.choice(list(COMPARISONS))
    says = _told(name, lambda found: COMPARISONS[compare](found, value))
    refutes = _told(name, lambda found: COMPARISONS[OPPOSITE[compare]](found, value))
    return compare(name, literal(value)), says, refutes


def _told(name: str, test: Callable[[Any], bool]) -> Meaning:
    return lambda row: None if row[name] is None else test(row[name])


def _both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _either(one: bool | None, other: bool | None) -> bool | None:
    if one or other:
        return True
    return None if one is None or other is None else False
