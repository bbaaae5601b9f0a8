"""A lookup from values of one column to its rows, and from a row to the place of its value.

Rows are sorted by value once. What a condition asks of a column is then a few ranges of that order,
found by halving, whatever the number of rows.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from puffin_ann.lake.read.conditions.tree import Leaf, Op

Ranges: TypeAlias = Sequence[tuple[int, int]]
"""Of codes: of each the first, and the one behind the last; ascending, and apart."""

BYTES_A_ROW = 8
"""Of a lookup, beside its values."""

BYTES_A_VALUE = 4
"""Of a lookup, for each value that there is, beside itself."""

FEW_RANGES = 4
"""So many are asked of codes one after the other; of more, codes are marked."""

FEW_VALUES = 16
"""So many are looked for one after the other."""


@dataclass(frozen=True, eq=False)
class ColumnLookup:
    """The values of a column, and their rows.

    Attributes:
        values: (u,) each value that there is once, ascending, NaN not among them: an array of
            numpy's of whole or floating-point numbers, else one of Arrow's.
        codes: (n,) uint32, of each row the place of its value; u of NaN, u + 1 of null.
        rows: (n,) uint32, by code.
        starts: (u + 3,) uint32, where in `rows` those of each code begin.
    """

    values: Any
    codes: NDArray[np.uint32]
    rows: NDArray[np.uint32]
    starts: NDArray[np.uint32]

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        arrays = (self.codes, self.rows, self.starts)
        return sum(array.nbytes for array in arrays) + int(self.values.nbytes)

    def ranges(self, leaf: Leaf) -> Ranges:
        """Return the codes of the rows that satisfy what is asked of the column."""
        return [(first, end) for first, end in self._ranges(leaf) if first < end]

    def count(self, ranges: Ranges) -> int:
        """Return how many rows have one of some codes."""
        return sum(int(self.starts[end]) - int(self.starts[first]) for first, end in ranges)

    def rows_of(self, ranges: Ranges) -> list[NDArray[np.uint32]]:
        """Return the rows that have one of some codes, each once."""
        return [self.rows[self.starts[first] : self.starts[end]] for first, end in ranges]

    def has(
        self, ranges: Ranges, rows: NDArray[np.uint32] | slice = slice(None)
    ) -> NDArray[np.bool_]:
        """Tell which of some rows have one of some codes, (m,) bool."""
        codes = self.codes[rows]
        if len(ranges) > FEW_RANGES:
            marks = np.zeros(len(self.values) + 2, np.bool_)
            for first, end in ranges:
                marks[first:end] = True
            return marks[codes]
        found = np.zeros(len(codes), np.bool_)
        for first, end in ranges:
            found |= codes == first if end == first + 1 else (codes >= first) & (codes < end)
        return found

    def _ranges(self, leaf: Leaf) -> Ranges:
        nan, null = len(self.values), len(self.values) + 1
        if leaf.op is Op.IN:
            return self._found(leaf.values)
        if leaf.op is Op.NOT_IN:
            return _between(self._found(leaf.values), null)
        if leaf.op in _BY_KIND:
            return _BY_KIND[leaf.op](nan, null)
        (value,) = leaf.values
        if leaf.op is Op.STARTS:
            return [self._beginning(value)]
        if leaf.op is Op.NOT_STARTS:
            return _between([self._beginning(value)], null)
        before, behind = self._sought(value)
        if leaf.op in (Op.LESS, Op.AT_MOST):
            return [(0, before if leaf.op is Op.LESS else behind)]
        return [(behind if leaf.op is Op.MORE else before, nan)]

    def _found(self, values: Sequence[Any]) -> Ranges:
        """Return where values are; each may be there as an empty range if it is not."""
        if len(values) <= FEW_VALUES:
            return sorted({self._sought(value) for value in values})
        if isinstance(self.values, np.ndarray):
            sought = np.unique(np.array(values, self.values.dtype))
            at = self.values.searchsorted(sought)
            at = at[at < len(self.values)]
            places = at[self.values[at] == sought[: len(at)]]
        else:
            sought = pa.array(values, self.values.type)
            found = pc.index_in(sought, value_set=self.values).drop_null()
            places = np.unique(found.to_numpy())
        return [(place, place + 1) for place in places.tolist()]

    def _sought(self, value: Any) -> tuple[int, int]:
        """Return where a value is, and where it ends: the same place if it is not there."""
        if isinstance(self.values, np.ndarray):
            at = int(self.values.searchsorted(self.values.dtype.type(value)))
        else:
            at = bisect_left(self._places, value, key=self._value)
        is_there = at < len(self.values) and self._value(at) == value
        return at, at + is_there

    def _beginning(self, text: str) -> tuple[int, int]:
        """Return where values that begin with a text are."""

        def begin(place: int) -> Any:
            return self._value(place)[: len(text)]

        places = self._places
        return bisect_left(places, text, key=begin), bisect_right(places, text, key=begin)

    @property
    def _places(self) -> range:
        return range(len(self.values))

    @cached_property
    def _value(self) -> Callable[[int], Any]:
        if isinstance(self.values, np.ndarray):
            return lambda place: self.values[place]
        return lambda place: self.values[place].as_py()


_BY_KIND: dict[Op, Callable[[int, int], Ranges]] = {
    Op.IS_NULL: lambda _nan, null: [(null, null + 1)],
    Op.NOT_NULL: lambda _nan, null: [(0, null)],
    Op.IS_NAN: lambda nan, null: [(nan, null)],
    Op.NOT_NAN: lambda nan, _null: [(0, nan)],
}


def _between(ranges: Ranges, end: int) -> Ranges:
    """Return the codes below `end` that are in none of some ranges."""
    firsts = [0, *(behind for _, behind in ranges)]
    ends = [*(first for first, _ in ranges), end]
    return list(zip(firsts, ends, strict=True))


def column_lookup(column: pa.ChunkedArray) -> ColumnLookup | None:
    """Return the lookup of a column; None if its values have no order that conditions know.

    Args:
        column: of n rows, in the type that Arrow has for it; values of any width may be in
            dictionaries.
    """
    array = _storage(column)
    kind = array.type
    valid = None
    if array.null_count:
        valid = np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), np.bool_)
    if pa.types.is_boolean(kind):
        array, kind = array.cast(pa.uint8()), pa.uint8()
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_floating(kind):
        return _of_numbers(_numbers(array), valid)
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_decimal(kind) or _is_wide(kind):
        return _of_others(array, valid)
    return None


def _is_wide(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
    )
    return any(test(kind) for test in tests)


def _storage(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array of a type that values are compared in."""
    chunks = [
        chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk for chunk in column.chunks
    ]
    if chunks:
        return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    kind = column.type
    return pa.array([], kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)


def _numbers(array: pa.Array) -> NDArray[Any]:
    """Return (n,) numbers as they are stored; of nulls any."""
    width = array.type.bit_width // 8
    kind = array.type
    form = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    stored = np.frombuffer(array.buffers()[1] or b"", f"{form}{width}")
    return stored[array.offset : array.offset + len(array)]


def _of_numbers(numbers: NDArray[Any], valid: NDArray[np.bool_] | None) -> ColumnLookup:
    is_floating = numbers.dtype.kind == "f"
    if is_floating:
        numbers = numbers + numbers.dtype.type(0)  # -0.0 equals 0.0
    some = slice(None) if valid is None else np.flatnonzero(valid)
    nans = np.zeros(0, np.int64)
    if is_floating and (is_nan := np.isnan(numbers)).any():
        keep = ~is_nan if valid is None else valid & ~is_nan
        nans = np.flatnonzero(is_nan if valid is None else valid & is_nan)
        some = np.flatnonzero(keep)
    chosen = numbers[some]
    order = chosen.argsort()
    ascending = chosen[order]
    is_first = np.ones(len(ascending), np.bool_)
    is_first[1:] = ascending[1:] != ascending[:-1]
    values = ascending[is_first]
    codes = np.full(len(numbers), len(values) + 1, np.uint32)
    codes[nans] = len(values)
    rows = order if isinstance(some, slice) else some[order]
    codes[rows] = np.cumsum(is_first, dtype=np.uint32) - np.uint32(1)
    starts = np.append(np.flatnonzero(is_first), len(ascending))
    return _lookup(values, codes, rows, nans, starts)


def _of_others(array: pa.Array, valid: NDArray[np.bool_] | None) -> ColumnLookup:
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    values = encoded.dictionary.take(pa.array(order))
    place = np.empty(len(order), np.uint32)
    place[order] = np.arange(len(order), dtype=np.uint32)
    given = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
    codes = place[given] if len(order) else np.zeros(len(array), np.uint32)
    if valid is not None:
        codes[~valid] = len(order) + 1
    rows = codes.argsort()
    rows = rows[: len(rows) - (0 if valid is None else len(valid) - int(valid.sum()))]
    counts = np.bincount(codes, minlength=len(order) + 2)[: len(order)]
    starts = np.append(0, np.cumsum(counts))
    return _lookup(values, codes, rows, np.zeros(0, np.int64), starts)


def _lookup(
    values: Any,
    codes: NDArray[np.uint32],
    rows: NDArray[np.int64],
    nans: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> ColumnLookup:
    """Put rows of NaN and null behind the others, (m,) by code."""
    nulls = np.flatnonzero(codes == len(values) + 1)
    behind = len(rows) + len(nans)
    return ColumnLookup(
        values,
        codes,
        np.concatenate([rows, nans, nulls]).astype(np.uint32),
        np.concatenate([starts, [behind, behind + len(nulls)]]).astype(np.uint32),
    )
