"""What a tree says, as an expression of PyIceberg's, bound to a schema.

PyIceberg's evaluators prune files by it. It is made without its parser, and without looking up a
column once for each comparison.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundIsNaN,
    BoundIsNull,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundNotIn,
    BoundNotNaN,
    BoundNotNull,
    BoundNotStartsWith,
    BoundStartsWith,
    BoundTerm,
    Or,
    Reference,
)
from pyiceberg.expressions.literals import (
    BinaryLiteral,
    BooleanLiteral,
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    FixedLiteral,
    FloatLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    TimeLiteral,
    TimestampLiteral,
    UUIDLiteral,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from puffin_ann.lake.read.conditions.tree import All, Leaf, Node, Op, leaves

FEW = 200
"""Values of which PyIceberg compares each with the bounds of a file; of a longer list it takes any
file to have some."""
MOST_LISTS = 32
"""Lists that a long one is cut into, between whose least and greatest value a file has to reach."""

_LITERALS: Mapping[type[IcebergType], Callable[[Any], Literal[Any]]] = {
    BinaryType: BinaryLiteral,
    BooleanType: BooleanLiteral,
    DateType: DateLiteral,
    DecimalType: DecimalLiteral,
    DoubleType: DoubleLiteral,
    FixedType: FixedLiteral,
    FloatType: FloatLiteral,
    IntegerType: LongLiteral,
    LongType: LongLiteral,
    StringType: StringLiteral,
    TimeType: TimeLiteral,
    TimestampType: TimestampLiteral,
    TimestamptzType: TimestampLiteral,
    UUIDType: UUIDLiteral,
}
"""How PyIceberg has the values of columns of a type, which trees have as it does."""

_PREDICATES: Mapping[Op, Callable[..., BooleanExpression]] = {
    Op.IN: BoundIn,
    Op.NOT_IN: BoundNotIn,
    Op.LESS: BoundLessThan,
    Op.AT_MOST: BoundLessThanOrEqual,
    Op.MORE: BoundGreaterThan,
    Op.AT_LEAST: BoundGreaterThanOrEqual,
    Op.IS_NULL: BoundIsNull,
    Op.NOT_NULL: BoundNotNull,
    Op.IS_NAN: BoundIsNaN,
    Op.NOT_NAN: BoundNotNaN,
    Op.STARTS: BoundStartsWith,
    Op.NOT_STARTS: BoundNotStartsWith,
}

_ASKED = frozenset((Op.IS_NULL, Op.NOT_NULL, Op.IS_NAN, Op.NOT_NAN))
"""Questions that compare nothing."""


def bound_expression(tree: Node, schema: Schema) -> BooleanExpression | None:
    """Return a tree as an expression; None if it compares a column of a type unknown here.

    Args:
        tree: of a condition.
        schema: whose columns it names.
    """
    terms: dict[int, BoundTerm] = {}
    for leaf in leaves(tree):
        if leaf.field_id not in terms:
            name = schema.find_column_name(leaf.field_id)
            if name is None:
                return None
            terms[leaf.field_id] = Reference(name).bind(schema)
        if (
            leaf.op not in _ASKED
            and type(terms[leaf.field_id].ref().field.field_type) not in _LITERALS
        ):
            return None
    return _expression(tree, terms)


def _expression(node: Node, terms: Mapping[int, BoundTerm]) -> BooleanExpression:
    if isinstance(node, Leaf):
        return _predicate(node, terms[node.field_id])
    parts = [_expression(part, terms) for part in node.parts]
    return _all_hold(parts) if isinstance(node, All) else _any_holds(parts)


def _all_hold(parts: list[BooleanExpression]) -> BooleanExpression:
    return And(*parts) if parts[1:] else parts[0] if parts else AlwaysTrue()


def _any_holds(parts: list[BooleanExpression]) -> BooleanExpression:
    return Or(*parts) if parts[1:] else parts[0] if parts else AlwaysFalse()


def _predicate(leaf: Leaf, term: BoundTerm) -> BooleanExpression:
    predicate = _PREDICATES[leaf.op]
    if leaf.op in _ASKED:
        return predicate(term)
    literal = _LITERALS[type(term.ref().field.field_type)]
    values = [literal(value) for value in leaf.values]
    if leaf.op is Op.IN:
        return _is_in(term, values)
    if leaf.op is Op.NOT_IN:
        return predicate(term, set(values))
    return predicate(term, *values)


def _is_in(term: BoundTerm, values: list[Literal[Any]]) -> BooleanExpression:
    """Return what asks whether a column has one of some values, which are sorted.

    A long list is cut into several: what PyIceberg tells of each by a file's bounds, it tells of
    none of a long one.
    """
    size = max(FEW, -(-len(values) // MOST_LISTS))
    lists = [values[first : first + size] for first in range(0, len(values), size)]
    return _any_holds([_is_in_list(term, listed) for listed in lists])


def _is_in_list(term: BoundTerm, values: list[Literal[Any]]) -> BooleanExpression:
    found = _PREDICATES[Op.IN](term, set(values))
    if len(values) <= FEW:
        return found
    within = _PREDICATES[Op.AT_LEAST](term, values[0]), _PREDICATES[Op.AT_MOST](term, values[-1])
    return _all_hold([*within, found])
