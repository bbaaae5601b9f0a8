"""Evaluate a condition on columns: which of their rows satisfy it."""

from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.expressions import BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, visit

from puffin_ann.lake.read.conditions.condition import Condition, path_to

Column: TypeAlias = Any
"""An array of Arrow's, whole or in chunks."""


class Columns(Protocol):
    """Columns of the same rows."""

    @property
    def num_rows(self) -> int:
        """Number of rows n."""

    def column(self, name: str) -> Column:
        """Return a column by its name."""


def rows_that_match(condition: Condition, columns: Columns) -> NDArray[np.bool_]:
    """Return (n,) bool, the rows that satisfy a condition.

    Args:
        condition: to satisfy.
        columns: those that it needs, by their names in its schema and in that schema's types.
    """
    found = visit(condition.bound, _Rows(condition, columns))
    if isinstance(found, bool):
        return np.full(columns.num_rows, found, np.bool_)
    filled = pc.fill_null(found, False)
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.bool_)


class _Rows(BoundBooleanExpressionVisitor[Any]):
    """Gives a column of bool for each expression, or one bool for all rows; null is unknown."""

    def __init__(self, condition: Condition, columns: Columns) -> None:
        self._schema, self._columns = condition.schema, columns
        self._known: dict[int, Column] = {}

    def _column(self, term: BoundTerm) -> Column:
        field_id = term.ref().field.field_id
        if field_id not in self._known:
            first, *rest = path_to(self._schema, field_id)
            column = self._columns.column(first.name)
            for field in rest:
                column = pc.struct_field(column, field.name)
            self._known[field_id] = _stored(column)
        return self._known[field_id]

    def _compare(self, compare: Any, term: BoundTerm, literal: Literal[Any]) -> Column:
        column = self._column(term)
        return compare(column, pa.scalar(literal.value, column.type))

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._compare(pc.equal, term, literal)

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._compare(pc.not_equal, term, literal)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._compare(pc.greater_equal, term, literal)

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._compare(pc.greater, term, literal)

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._compare(pc.less, term, literal)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._compare(pc.less_equal, term, literal)

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> Column:
        column = self._column(term)
        values = [value.value if isinstance(value, Literal) else value for value in literals]
        if pa.types.is_floating(column.type) and 0 in values:
            values += [0.0, -0.0]  # `is_in` compares bits, and comparisons take them for equal
        return pc.is_in(column, pa.array(values, column.type))  # of a null: false

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> Column:
        return pc.invert(self.visit_in(term, literals))

    def visit_is_nan(self, term: BoundTerm) -> Column:
        return pc.is_nan(self._column(term))

    def visit_not_nan(self, term: BoundTerm) -> Column:
        return pc.invert(pc.is_nan(self._column(term)))

    def visit_is_null(self, term: BoundTerm) -> Column:
        return pc.is_null(self._column(term))

    def visit_not_null(self, term: BoundTerm) -> Column:
        return pc.is_valid(self._column(term))

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return pc.starts_with(self._column(term), literal.value)

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return pc.invert(self.visit_starts_with(term, literal))

    def visit_true(self) -> bool:
        return True

    def visit_false(self) -> bool:
        return False

    def visit_not(self, child_result: Any) -> Any:
        raise TypeError("negations were rewritten")

    def visit_and(self, left_result: Any, right_result: Any) -> Any:
        for one, other in ((left_result, right_result), (right_result, left_result)):
            if isinstance(one, bool):
                return other if one else False
        return pc.and_kleene(left_result, right_result)

    def visit_or(self, left_result: Any, right_result: Any) -> Any:
        for one, other in ((left_result, right_result), (right_result, left_result)):
            if isinstance(one, bool):
                return True if one else other
        return pc.or_kleene(left_result, right_result)


def _stored(column: Column) -> Column:
    """Return a column of a type that values are compared in."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    if isinstance(column, pa.ChunkedArray):
        storage = column.type.storage_type
        return pa.chunked_array([chunk.storage for chunk in column.chunks], storage)
    return column.storage
