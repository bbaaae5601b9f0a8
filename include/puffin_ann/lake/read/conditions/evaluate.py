"""Evaluate a condition on columns: which of their rows satisfy it."""

from collections.abc import Callable
from functools import reduce
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from puffin_ann.lake.read.conditions.condition import Condition, path_to
from puffin_ann.lake.read.conditions.tree import All, Leaf, Node, Op

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
    found = _Rows(condition, columns).of(condition.tree)
    if isinstance(found, bool):
        return np.full(columns.num_rows, found, np.bool_)
    filled = pc.fill_null(found, False)
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.bool_)


class _Rows:
    """Gives a column of bool for each part, or one bool for all rows; null is unknown."""

    def __init__(self, condition: Condition, columns: Columns) -> None:
        self._schema, self._columns = condition.schema, columns
        self._known: dict[int, Column] = {}

    def of(self, node: Node) -> Column | bool:
        """Return which rows satisfy a part."""
        if isinstance(node, Leaf):
            return _ASKED[node.op](self._column(node.field_id), node.values)
        join = pc.and_kleene if isinstance(node, All) else pc.or_kleene
        parts = [self.of(part) for part in node.parts]
        return reduce(join, parts) if parts else isinstance(node, All)

    def _column(self, field_id: int) -> Column:
        if field_id not in self._known:
            first, *rest = path_to(self._schema, field_id)
            column = self._columns.column(first.name)
            for field in rest:
                column = pc.struct_field(column, field.name)
            self._known[field_id] = _stored(column)
        return self._known[field_id]


def _stored(column: Column) -> Column:
    """Return a column of a type that values are compared in."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    if isinstance(column, pa.ChunkedArray):
        storage = column.type.storage_type
        return pa.chunked_array([chunk.storage for chunk in column.chunks], storage)
    return column.storage


def _compared(name: str) -> Callable[[Column, tuple[Any, ...]], Column]:
    def ask(column: Column, values: tuple[Any, ...]) -> Column:
        (value,) = values
        # By name: Arrow's functions are imported when first used, not when this module is.
        return getattr(pc, name)(column, pa.scalar(value, column.type))

    return ask


def _is_in(column: Column, values: tuple[Any, ...]) -> Column:
    if len(values) == 1:
        return pc.equal(column, pa.scalar(values[0], column.type))
    listed = list(values)
    if pa.types.is_floating(column.type) and 0 in listed:
        listed += [0.0, -0.0]  # `is_in` compares bits, and comparisons take them for equal
    return pc.is_in(column, pa.array(listed, column.type))  # of a null: false


def _is_not_in(column: Column, values: tuple[Any, ...]) -> Column:
    return pc.invert(_is_in(column, values))


def _starts(column: Column, values: tuple[Any, ...]) -> Column:
    return pc.starts_with(column, values[0])


_ASKED: dict[Op, Callable[[Column, tuple[Any, ...]], Column]] = {
    Op.IN: _is_in,
    Op.NOT_IN: _is_not_in,
    Op.LESS: _compared("less"),
    Op.AT_MOST: _compared("less_equal"),
    Op.MORE: _compared("greater"),
    Op.AT_LEAST: _compared("greater_equal"),
    Op.IS_NULL: lambda column, _: pc.is_null(column),
    Op.NOT_NULL: lambda column, _: pc.is_valid(column),
    Op.IS_NAN: lambda column, _: pc.is_nan(column),
    Op.NOT_NAN: lambda column, _: pc.invert(pc.is_nan(column)),
    Op.STARTS: _starts,
    Op.NOT_STARTS: lambda column, values: pc.invert(_starts(column, values)),
}
"""By what is asked: which rows of a column satisfy it."""
