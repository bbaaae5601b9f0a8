"""A condition on the rows of a snapshot: read, held to the schema, and brought into normal form.

The language is PyIceberg's. Nulls mean what they mean to engines that read Iceberg tables: a null
satisfies `is null` alone, no comparison, and no negation of one. So `not (x = 1)` is `x != 1`, and
both say that x is not null. NaN satisfies `is nan`, `!=` and `not in`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    IsNaN,
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
from pyiceberg.expressions.literals import DecimalLiteral, FloatLiteral, Literal
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import (
    BooleanExpressionVisitor,
    bind,
    rewrite_not,
    visit,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
)
from pyparsing import ParseBaseException

from puffin_ann.errors import ColumnNotFoundError, QueryError

EXAMPLE = "price < 20 and category in ('tea', 'coffee')"
MOST_CHARACTERS = 100_000
"""Of a condition as text: the parser takes time and memory for each."""

_NUMBERS = (IntegerType, LongType, DecimalType, FloatType, DoubleType)


@dataclass(frozen=True, eq=False)
class Condition:
    """What rows have to satisfy, bound to a schema.

    Attributes:
        text: as it was given.
        schema: whose columns it names.
        expression: without `not`, and so that nulls satisfy no comparison; not bound.
        bound: the same, bound to the schema.
        columns: top-level columns that it needs, in the schema's order.
        key: the same for conditions that are written alike.
    """

    text: str
    schema: Schema
    expression: BooleanExpression
    bound: BooleanExpression
    columns: tuple[NestedField, ...]
    key: str

    @property
    def is_always_true(self) -> bool:
        """Tell whether every row satisfies it."""
        return isinstance(self.bound, AlwaysTrue)


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
    given = _parsed(where)
    normal = _NormalForm(schema, owner)
    try:
        expression = visit(rewrite_not(given), normal)
        bound = bind(schema, expression, case_sensitive=True)
    except RecursionError:
        raise QueryError(
            "where: the condition is nested too deep; use in (...) for lists"
        ) from None
    needed = {path[0].field_id for path in normal.paths.values()}
    return Condition(
        text=where if isinstance(where, str) else str(where),
        schema=schema,
        expression=expression,
        bound=bound,
        columns=tuple(field for field in schema.fields if field.field_id in needed),
        key=f"{schema.schema_id} {expression!r}",
    )


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


def _parsed(where: str | BooleanExpression) -> BooleanExpression:
    if isinstance(where, BooleanExpression):
        return where
    if not isinstance(where, str):
        raise QueryError(
            f"where is {where!r}; it takes text, such as {EXAMPLE!r}, or an expression of "
            "PyIceberg's"
        )
    if len(where) > MOST_CHARACTERS:
        raise QueryError(f"where has {len(where)} characters; {MOST_CHARACTERS} at most are read")
    try:
        found = parse(where)
    except ParseBaseException as error:
        raise QueryError(
            f"where {where!r} cannot be read{_place(where, error.loc)}; it takes comparisons of a "
            "column with values, text in single quotes, values of one kind in a list, joined by "
            f"and, or and not: {EXAMPLE}"
        ) from None
    except RecursionError:
        raise QueryError(
            "where: the condition is nested too deep; use in (...) for lists"
        ) from None
    except (ValueError, TypeError):
        # What can be read and is refused all the same: the parser's own words are of its code.
        raise QueryError(
            f"where {where!r} cannot be read: like takes text that ends with its only %, such as "
            "'begins%'"
        ) from None
    if not isinstance(found, BooleanExpression):
        raise QueryError(f"where {where!r} is no condition; it takes comparisons: {EXAMPLE}")
    return found


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
        raise QueryError(f"where: {predicate} is bound already; pass an expression that is not")

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        field = self._field(predicate)
        kind = field.field_type
        where = f"where: column {field.name!r} of {self._owner} is of type {kind}"
        if isinstance(predicate, StartsWith | NotStartsWith) and not isinstance(kind, StringType):
            raise QueryError(f"{where}; like compares columns of text")
        if isinstance(predicate, IsNaN | NotNaN) and not isinstance(kind, _NUMBERS):
            raise QueryError(f"{where}, which has no NaN; is nan asks columns of numbers")
        try:
            fitting = _with_values_of(predicate, kind)
            bound = fitting.bind(self._schema, case_sensitive=True)
        except _UnfitValueError as error:
            raise QueryError(f"{where}, which {_shown(predicate)} does not fit: {error}") from None
        except (ValueError, TypeError, ArithmeticError):
            raise QueryError(f"{where}, which {_shown(predicate)} does not fit") from None
        compares = isinstance(fitting, LiteralPredicate | SetPredicate)
        if compares and isinstance(bound, AlwaysTrue):  # the value is beyond all of the type
            return NotNull(term=predicate.term)
        if isinstance(fitting, NotEqualTo | NotIn | NotNaN | NotStartsWith):
            return And(NotNull(term=predicate.term), fitting)
        return fitting

    def _field(self, predicate: UnboundPredicate) -> NestedField:
        if not isinstance(predicate.term, Reference):
            raise QueryError(f"where: {predicate.term} is no column, of which a condition speaks")
        name = predicate.term.name
        try:
            field = self._schema.find_field(name, case_sensitive=True)
        except ValueError:
            names = ", ".join(
                f"{column.name} ({column.field_type})" for column in self._schema.fields
            )
            raise ColumnNotFoundError(
                f"where: {self._owner} has no column {name!r}; it has: {names}"
            ) from None
        path = path_to(self._schema, field.field_id)
        if not path:
            raise QueryError(
                f"where: {name!r} of {self._owner} is within a list or map, of which a row has any "
                "number; a condition compares columns and fields of structs"
            )
        self.paths[field.field_id] = path
        return field


class _UnfitValueError(ValueError):
    """A value that a column cannot have; the message says why."""


def _shown(predicate: UnboundPredicate) -> str:
    if isinstance(predicate, LiteralPredicate):
        return _value_shown(predicate.literal)
    if isinstance(predicate, SetPredicate):
        return ", ".join(sorted(map(_value_shown, predicate.literals)))
    return "a question for null or NaN"


def _value_shown(literal: Literal[Any]) -> str:
    """Return a value as a condition has it."""
    value = literal.value
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, Decimal) else repr(value)


def _with_values_of(predicate: UnboundPredicate, kind: IcebergType) -> UnboundPredicate:
    """Return a predicate whose values are of a column's type, as exactly as that has them.

    Raises:
        ValueError, TypeError: a value is not.
    """
    if isinstance(predicate, LiteralPredicate):
        return type(predicate)(predicate.term, _value_of(predicate.literal, kind))
    if isinstance(predicate, SetPredicate):
        literals = {_value_of(literal, kind) for literal in predicate.literals}
        return type(predicate)(predicate.term, literals)
    return predicate


def _value_of(literal: Literal[Any], kind: IcebergType) -> Literal[Any]:
    value = literal.value
    if isinstance(kind, IntegerType | LongType) and isinstance(value, float | Decimal):
        if value != int(value):
            raise _UnfitValueError("it is no whole number")
    elif isinstance(kind, DecimalType) and isinstance(value, int | float | Decimal):
        exact = Decimal(str(value) if isinstance(value, float) else value)
        scaled = exact.quantize(Decimal(1).scaleb(-kind.scale))
        if scaled != exact:
            raise _UnfitValueError(f"it has more than {kind.scale} digits behind the point")
        return DecimalLiteral(scaled)
    elif isinstance(kind, FloatType):
        # Bounds of files are compared with the value, too: as float32, which rows are compared in.
        converted = literal.to(kind)
        if isinstance(converted, FloatLiteral):
            return FloatLiteral(float(np.float32(converted.value)))
    return literal
