"""A condition as a small tree: comparisons of columns, joined by and and or.

It says what a bound expression of PyIceberg's says, in a form that is made and asked faster.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from pyiceberg.expressions import BooleanExpression, BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, visit


class Op(StrEnum):
    """What a column is asked; no null satisfies any of it but `IS_NULL`."""

    IN = "in"
    NOT_IN = "not in"
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    IS_NULL = "is null"
    NOT_NULL = "is not null"
    IS_NAN = "is nan"
    NOT_NAN = "is not nan"
    STARTS = "like"
    NOT_STARTS = "not like"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A question to a column.

    Attributes:
        field_id: of the column, or of a field of structs.
        op: what is asked; equality is `IN` of one value.
        values: to compare with, as `pyiceberg` has them of the column's type, each once.
    """

    field_id: int
    op: Op
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class All:
    """All parts hold, which are each there once, none of the same kind. Without any it is true."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds; of parts the same is true. Without any it is false."""

    parts: tuple["Node", ...]


Node: TypeAlias = Leaf | All | AnyOf

TRUE, FALSE = All(()), AnyOf(())


def all_of(*parts: Node) -> Node:
    """Return what holds if all parts do."""
    if FALSE in parts:
        return FALSE
    flat = _joined(_flat(parts, All), Op.NOT_IN)
    return flat[0] if len(flat) == 1 else All(flat)


def any_of(*parts: Node) -> Node:
    """Return what holds if a part does."""
    if TRUE in parts:
        return TRUE
    flat = _joined(_flat(parts, AnyOf), Op.IN)
    return flat[0] if len(flat) == 1 else AnyOf(flat)


def _flat(parts: Iterable[Node], kind: type[All] | type[AnyOf]) -> Iterator[Node]:
    for part in parts:
        if isinstance(part, kind):
            yield from part.parts
        else:
            yield part


def _joined(parts: Iterable[Node], op: Op) -> tuple[Node, ...]:
    """Return parts each once, and those that ask a column by `op` as one, where the first was.

    Thousands of comparisons of one column are one with a list, which is looked up at once.
    """
    found: dict[object, Node] = {}
    values: dict[int, list[Any]] = {}
    for part in parts:
        if isinstance(part, Leaf) and part.op is op:
            values.setdefault(part.field_id, []).extend(part.values)
            found.setdefault((part.field_id, op), part)
        else:
            found.setdefault(part, part)
    for field_id, several in values.items():
        found[field_id, op] = Leaf(field_id, op, _each_once(several))
    return tuple(found.values())


def one_of(field_id: int, values: Iterable[Any]) -> Leaf:
    """Return what asks whether a column has one of some values."""
    return Leaf(field_id, Op.IN, _each_once(values))


def none_of(field_id: int, values: Iterable[Any]) -> Leaf:
    """Return what asks whether a column has a value, and none of some."""
    return Leaf(field_id, Op.NOT_IN, _each_once(values))


def _each_once(values: Iterable[Any]) -> tuple[Any, ...]:
    found = tuple(values)
    return found if len(found) == 1 else tuple(sorted(set(found)))


def leaves(node: Node) -> Iterator[Leaf]:
    """Give the questions that a condition consists of."""
    if isinstance(node, Leaf):
        yield node
        return
    for part in node.parts:
        yield from leaves(part)


def tree_of(bound: BooleanExpression) -> Node:
    """Return what a bound expression says.

    Its negations of comparisons say that the column is not null, as those of a `Condition` do.
    """
    found: Node = visit(bound, _Tree())
    return found


def _field_id(term: BoundTerm) -> int:
    return int(term.ref().field.field_id)


class _Tree(BoundBooleanExpressionVisitor[Node]):
    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> Node:
        return one_of(_field_id(term), (literal.value,))

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> Node:
        return none_of(_field_id(term), (literal.value,))

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Node:
        return Leaf(_field_id(term), Op.AT_LEAST, (literal.value,))

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> Node:
        return Leaf(_field_id(term), Op.MORE, (literal.value,))

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> Node:
        return Leaf(_field_id(term), Op.LESS, (literal.value,))

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Node:
        return Leaf(_field_id(term), Op.AT_MOST, (literal.value,))

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> Node:
        return one_of(_field_id(term), map(_value, literals))

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> Node:
        return none_of(_field_id(term), map(_value, literals))

    def visit_is_nan(self, term: BoundTerm) -> Node:
        return Leaf(_field_id(term), Op.IS_NAN)

    def visit_not_nan(self, term: BoundTerm) -> Node:
        return Leaf(_field_id(term), Op.NOT_NAN)

    def visit_is_null(self, term: BoundTerm) -> Node:
        return Leaf(_field_id(term), Op.IS_NULL)

    def visit_not_null(self, term: BoundTerm) -> Node:
        return Leaf(_field_id(term), Op.NOT_NULL)

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Node:
        return Leaf(_field_id(term), Op.STARTS, (literal.value,))

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Node:
        return Leaf(_field_id(term), Op.NOT_STARTS, (literal.value,))

    def visit_true(self) -> Node:
        return TRUE

    def visit_false(self) -> Node:
        return FALSE

    def visit_not(self, child_result: Node) -> Node:
        raise TypeError("negations were rewritten")

    def visit_and(self, left_result: Node, right_result: Node) -> Node:
        return all_of(left_result, right_result)

    def visit_or(self, left_result: Node, right_result: Node) -> Node:
        return any_of(left_result, right_result)


def _value(literal: Any) -> Any:
    return literal.value if isinstance(literal, Literal) else literal
