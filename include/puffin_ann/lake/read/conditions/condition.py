"""A condition on the rows of a snapshot: read, held to the schema, and brought into normal form.

The language is PyIceberg's. Nulls mean what they mean to engines that read Iceberg tables: a null
satisfies `is null` alone, no comparison, and no negation of one. So `not (x = 1)` is `x != 1`, and
both say that x is not null. NaN satisfies `is nan`, `!=` and `not in`. -0.0 equals 0.0, as in SQL.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    EqualTo,
    GreaterThan,
    IsNaN,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    SetPredicate,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import DoubleLiteral, FloatLiteral, Literal
from pyiceberg.expressions.visitors import (
    BooleanExpressionVisitor,
    bind,
    rewrite_not,
    visit,
)
from pyiceberg.schema import Schema
from pyiceberg.types import FloatType, IcebergType, NestedField, StringType, StructType

from puffin_ann.errors import ColumnNotFoundError, QueryError
from puffin_ann.lake.read.conditions.expression import bound_expression
from puffin_ann.lake.read.conditions.quick_text import quick_tree
from puffin_ann.lake.read.conditions.text import (
    EXAMPLE,
    nested_too_deep,
    parsed,
    quoted,
    shortened,
)
from puffin_ann.lake.read.conditions.tree import TRUE, Node, leaves, tree_of
from puffin_ann.lake.read.conditions.values import (
    FLOATS,
    NUMBERS,
    Beyond,
    UnfitValueError,
    fitted,
)
from puffin_ann.lake.read.conditions.words import expression_in_words, value_in_words
from puffin_ann.lake.read.data.types_in_words import columns_in_words, type_in_words
from puffin_ann.wording import meant


@dataclass(frozen=True, eq=False)
class Condition:
    """What rows have to satisfy, held to a schema.

    Attributes:
        where: as it was given.
        schema: whose columns it names.
        owner: the table, for messages.
        tree: what it says.
        columns: top-level columns that it needs, in the schema's order.
        key: the same for conditions that are written alike.
    """

    where: str | BooleanExpression
    schema: Schema
    owner: str
    tree: Node
    columns: tuple[NestedField, ...]
    key: str

    @cached_property
    def text(self) -> str:
        """As it was given, in words."""
        return self.where if isinstance(self.where, str) else expression_in_words(self.where)

    @property
    def is_always_true(self) -> bool:
        """Tell whether every row satisfies it."""
        return self.tree == TRUE

    @cached_property
    def bound(self) -> BooleanExpression:
        """Without `not`, and so that nulls satisfy no comparison; bound to the schema."""
        found = bound_expression(self.tree, self.schema)
        return _normal_form(self.where, self.schema, self.owner)[0] if found is None else found


def read_condition(where: str | BooleanExpression, schema: Schema, owner: str) -> Condition:
    """Return a condition on rows of a schema.

    Args:
        where: text, such as `price < 20 and category in ('tea', 'coffee')`, or an expression of
            PyIceberg's that is not bound.
        schema: of the snapshot whose rows they are.
        owner: the table, for messages.

    Raises:
        QueryError: it cannot be read, or compares a column with what is of another type.
        ColumnNotFoundError: it names a column that the schema does not have.
    """
    tree = quick_tree(where, schema) if isinstance(where, str) else None
    if tree is not None:
        needed = {leaf.field_id for leaf in leaves(tree)}
        return _condition(where, schema, owner, tree, needed)
    _, tree, needed = _normal_form(where, schema, owner)
    try:
        return _condition(where, schema, owner, tree, needed)
    except RecursionError:
        raise nested_too_deep() from None


def _condition(
    where: str | BooleanExpression, schema: Schema, owner: str, tree: Node, needed: set[int]
) -> Condition:
    columns = tuple(field for field in schema.fields if field.field_id in needed)
    return Condition(where, schema, owner, tree, columns, f"{schema.schema_id} {tree!r}")


def _normal_form(
    where: str | BooleanExpression, schema: Schema, owner: str
) -> tuple[BooleanExpression, Node, set[int]]:
    """Return an expression in normal form and bound, and as a tree, and ids of its columns."""
    given = _expression(where)
    normal = _NormalForm(schema, owner)
    try:
        bound = bind(schema, visit(rewrite_not(given), normal), case_sensitive=True)
        tree = tree_of(bound)
    except RecursionError:
        raise nested_too_deep() from None
    return bound, tree, {path[0].field_id for path in normal.paths.values()}


def path_to(schema: Schema, field_id: int) -> tuple[NestedField, ...]:
    """Return the fields that lead to one: a top-level column, then fields of structs.

    Empty if it is within a list or a map.
    """
    return next(_paths(schema.fields, field_id), ())


def _paths(fields: tuple[NestedField, ...], field_id: int) -> Iterator[tuple[NestedField, ...]]:
    for field in fields:
        if field.field_id == field_id:
            yield (field,)
        elif isinstance(field.field_type, StructType):
            for path in _paths(field.field_type.fields, field_id):
                yield (field, *path)


def _expression(where: str | BooleanExpression) -> BooleanExpression:
    if isinstance(where, BooleanExpression):
        return where
    if isinstance(where, str):
        return parsed(where)
    raise QueryError(
        f"where is {shortened(repr(where))}; it takes text, such as {EXAMPLE!r}, or an expression "
        "of PyIceberg's"
    )


class _NormalForm(BooleanExpressionVisitor[BooleanExpression]):
    """Makes predicates that no null satisfies but `is null`, with values as columns have them."""

    def __init__(self, schema: Schema, owner: str) -> None:
        self._schema, self._owner = schema, owner
        self.paths: dict[int, tuple[NestedField, ...]] = {}

    def visit_true(self) -> BooleanExpression:
        return AlwaysTrue()

    def visit_false(self) -> BooleanExpression:
        return AlwaysFalse()

    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        raise TypeError("negations were rewritten")

    def visit_and(
        self, left_result: BooleanExpression, right_result: BooleanExpression
    ) -> BooleanExpression:
        return And(left_result, right_result)

    def visit_or(
        self, left_result: BooleanExpression, right_result: BooleanExpression
    ) -> BooleanExpression:
        return Or(left_result, right_result)

    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        raise QueryError(
            f"where: {shortened(str(predicate))} is bound already; pass an expression that is not"
        )

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        field = self._field(predicate)
        kind = field.field_type
        where = f"where: column {field.name!r} of {self._owner} is of type {type_in_words(kind)}"
        if isinstance(predicate, StartsWith | NotStartsWith) and not isinstance(kind, StringType):
            raise QueryError(f"{where}; like compares columns of text")
        if isinstance(predicate, IsNaN | NotNaN) and not isinstance(kind, NUMBERS):
            raise QueryError(f"{where}, which has no NaN; is nan asks columns of numbers")
        try:
            fitting = _fitting(predicate, kind)
            if isinstance(fitting, UnboundPredicate):
                fitting.bind(self._schema, case_sensitive=True)
        except UnfitValueError as error:
            unfit = _shown(predicate, kind)
            raise QueryError(f"{where}, which {unfit} does not fit: {error}") from None
        except (ValueError, TypeError, ArithmeticError):
            raise QueryError(f"{where}, which {_shown(predicate, kind)} does not fit") from None
        if isinstance(fitting, NotEqualTo | NotIn | NotNaN | NotStartsWith):
            return And(NotNull(term=predicate.term), fitting)
        return fitting

    def _field(self, predicate: UnboundPredicate) -> NestedField:
        if not isinstance(predicate.term, Reference):
            raise QueryError(
                f"where: {shortened(str(predicate.term))} is no column, of which a condition speaks"
            )
        name = predicate.term.name
        try:
            field = self._schema.find_field(name, case_sensitive=True)
        except ValueError:
            raise ColumnNotFoundError(
                f"where: {self._owner} has no column {quoted(name)}"
                f"{meant(name, self._schema.column_names)}; it has: "
                f"{columns_in_words(self._schema)}"
            ) from None
        path = path_to(self._schema, field.field_id)
        if not path:
            raise QueryError(
                f"where: {name!r} of {self._owner} is within a list or map, of which a row has any "
                "number; a condition compares columns and fields of structs"
            )
        self.paths[field.field_id] = path
        return field


def _shown(predicate: UnboundPredicate, kind: IcebergType) -> str:
    """Return what does not fit a column's type: of a list those members, where it is some."""
    if isinstance(predicate, LiteralPredicate):
        return shortened(value_in_words(predicate.literal))
    if isinstance(predicate, SetPredicate):
        members = predicate.literals
        unfit = [member for member in members if not _fits(member, kind)]
        return shortened(", ".join(sorted(map(value_in_words, unfit or members))))
    return "a question for null or NaN"


def _fits(literal: Literal[Any], kind: IcebergType) -> bool:
    try:
        fitted(literal, kind)
    except UnfitValueError:
        return False
    return True


def _fitting(predicate: UnboundPredicate, kind: IcebergType) -> BooleanExpression:
    """Return a predicate whose values are of a column's type, as exactly as that has them.

    Raises:
        UnfitValueError: a value is not.
    """
    if isinstance(predicate, LiteralPredicate):
        value = fitted(predicate.literal, kind)
        if isinstance(value, Beyond):
            return _compared_beyond(predicate, value, kind)
        return type(predicate)(predicate.term, value)
    if isinstance(predicate, SetPredicate):
        values = (fitted(literal, kind) for literal in predicate.literals)
        within = {value for value in values if not isinstance(value, Beyond)}
        if not within and isinstance(predicate, NotIn):
            return NotNull(term=predicate.term)
        return type(predicate)(predicate.term, within)
    return predicate


def _compared_beyond(
    predicate: LiteralPredicate, side: Beyond, kind: IcebergType
) -> BooleanExpression:
    """Return a comparison with a value that is beyond all finite ones of a column's type.

    Of floating-point numbers, infinity is beyond it, too, and NaN is on no side.
    """
    term = predicate.term
    if isinstance(predicate, EqualTo | NotEqualTo):
        return NotNull(term=term) if isinstance(predicate, NotEqualTo) else AlwaysFalse()
    is_above = side is Beyond.ABOVE
    holds = isinstance(predicate, LessThan | LessThanOrEqual) is is_above
    if not isinstance(kind, FLOATS):
        return NotNull(term=term) if holds else AlwaysFalse()
    infinity = math.inf if is_above else -math.inf
    literal = FloatLiteral(infinity) if isinstance(kind, FloatType) else DoubleLiteral(infinity)
    if not holds:
        return EqualTo(term=term, value=literal)
    beyond_none = LessThan if is_above else GreaterThan
    return beyond_none(term=term, value=literal)
