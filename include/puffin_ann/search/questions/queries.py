"""Take queries as arrays, lists and columns of Arrow have them, and refuse what is no number."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from puffin_ann.ann.core.memmap import as_asked
from puffin_ann.errors import QueryError
from puffin_ann.lake.read.data.vectors import LARGEST_NORM
from puffin_ann.search.questions.checks import shown
from puffin_ann.wording import counted

_BOOLEANS, _TEXT = "true and false", "text"
_DATES, _LENGTHS = "dates", "lengths of time"

_NO_NUMBERS = {
    "b": _BOOLEANS,
    "U": _TEXT,
    "S": _TEXT,
    "T": _TEXT,
    "M": _DATES,
    "m": _LENGTHS,
}
"""By kind of an array: what NumPy would make numbers of."""

_NO_NUMBERS_ALONE = (
    ((bool, np.bool_), _BOOLEANS),
    ((str, bytes), _TEXT),
    ((np.datetime64,), _DATES),
    ((np.timedelta64,), _LENGTHS),
)
"""The same of single values, of which lists and arrays of objects have any beside each other."""

_SURELY_SOUND = LARGEST_NORM**2 / 2
"""A sum of squares, below which all numbers are finite and no query is too long: more than half of
it is not lost where float32 adds up."""

_FEW = 8192
"""Numbers up to which BLAS does not have threads of its own, which would go on spinning."""


def checked_queries(
    queries: ArrayLike, dimension: int, metric: str, index: str
) -> NDArray[np.float32]:
    """Return queries as (q, dimension) float32 for kernels; one alone may be (dimension,).

    Args:
        queries: as they were given: an array, lists, or a column of Arrow's.
        dimension: numbers in a vector of the index.
        metric: of the index.
        index: its name.

    Raises:
        QueryError: they are no finite numbers, of another shape, or longer than rows of an index
            may be where distances would leave float32.
    """
    if type(queries) is np.ndarray and queries.dtype == np.float32:
        batch = np.ascontiguousarray(queries)
    else:
        batch = _as_float32(queries, dimension)
    if batch.ndim == 1:
        batch = batch[None, :]
    if batch.ndim != 2 or batch.shape[1] != dimension:
        raise QueryError(
            f"queries have shape {batch.shape}; index {index!r} needs (n, {dimension})"
        )
    if not _largest_square(batch) < _SURELY_SOUND:  # NaN is not, either
        _require_sound(batch, metric)
    return as_asked(batch)


def _largest_square(batch: NDArray[np.float32]) -> np.float32:
    """Return the largest squared length, or what is larger: the sum of all."""
    if batch.size <= _FEW:
        # The fastest of what looks at all numbers, and unlike `dot` without warnings of infinity.
        found: np.float32 = np.vdot(batch, batch)
    else:
        found = np.einsum("ij,ij->i", batch, batch).max()
    return found


def _require_sound(batch: NDArray[np.float32], metric: str) -> None:
    """Refuse queries that no distance is right of; by cosine and inner product long ones are."""
    finite = np.isfinite(batch).all(axis=1)
    if not finite.all():
        bad = np.flatnonzero(~finite)[0]
        raise QueryError(f"query {bad} holds a NaN or infinite value (float32)")
    if metric != "l2":
        return
    norms = np.linalg.norm(batch.astype(np.float64), axis=1)  # as those of rows are measured
    too_long = norms > LARGEST_NORM
    if too_long.any():
        bad = np.flatnonzero(too_long)[0]
        raise QueryError(
            f"query {bad} has length {norms[bad]:.2g}; by l2 queries and rows are at most "
            f"{LARGEST_NORM:.2g} long, since squares of distances would leave float32: scale them"
        )


def require_numbers(values: Iterable[Any]) -> None:
    """Refuse lists that hold what NumPy would make numbers of beside numbers.

    Args:
        values: numbers, or lists, tuples and arrays of them.

    Raises:
        QueryError: says what they hold.
    """
    kinds = set(map(type, values))
    for kind in kinds:
        for no_numbers, told in _NO_NUMBERS_ALONE:
            if issubclass(kind, no_numbers):
                raise QueryError(f"queries hold {told}; give numbers")
    if kinds <= {float, int}:
        return
    for value in values:
        if isinstance(value, list | tuple):
            require_numbers(value)
        elif isinstance(value, np.ndarray):
            _require_array_of_numbers(value)


def why_uneven(queries: Sequence[Any]) -> str:
    """Return which of several lists is not one of as many numbers as the first; "": none is."""
    many = [isinstance(query, list | tuple | np.ndarray) for query in queries]
    if not any(many):
        bad = [value for value in queries if not _is_number(value)]
        return f"{shown(bad[0])} is no number" if bad else ""
    for number, query in enumerate(queries):
        if not many[number]:
            return f"query {number} is {shown(query)}, and not a list as others are"
        bad = [value for value in query if not _is_number(value)]
        if bad:
            return f"query {number} holds {shown(bad[0])}, which is no number"
        if len(query) != len(queries[0]):
            length, first = counted(len(query), "number"), len(queries[0])
            return f"query {number} has {length}, and query 0 has {first:,}"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number)


def _require_array_of_numbers(values: NDArray[Any]) -> None:
    kind = values.dtype.kind
    if type(values) is not np.ndarray and np.ma.is_masked(values):
        raise QueryError("queries hold masked values; give numbers")
    if values.dtype.names is not None:
        fields = ", ".join(values.dtype.names)
        raise QueryError(f"queries are records of fields ({fields}); give arrays of numbers")
    if kind == "O":
        require_numbers(values.ravel().tolist())
    elif kind == "c":
        raise QueryError("queries are complex numbers; give real ones")
    elif kind in _NO_NUMBERS:
        raise QueryError(f"queries hold {_NO_NUMBERS[kind]}; give numbers")


def _as_float32(queries: ArrayLike, dimension: int) -> NDArray[np.float32]:
    """Return numbers of any kind; beyond float32 they become infinite.

    Raises:
        QueryError: they are none.
    """
    if isinstance(queries, pa.Table | pa.RecordBatch):
        raise QueryError("queries are a table; give one of its columns: table['embedding']")
    try:
        if isinstance(queries, pa.Array | pa.ChunkedArray | pa.Scalar):
            queries = _of_arrow(queries, dimension)
        elif isinstance(queries, list | tuple):
            require_numbers(queries)
        # An array stays what it is, since a mask would be lost.
        given = queries if isinstance(queries, np.ndarray) else np.asarray(queries)
        _require_array_of_numbers(given)
        if given.dtype == object and given.ndim == 1:  # of other libraries' columns, one a vector
            given = np.asarray(given.tolist())
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(given, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        why = why_uneven(queries) if isinstance(queries, list | tuple) else ""
        raise QueryError(f"queries are not numbers of one dimension: {why or error}") from None


def _of_arrow(queries: pa.Array | pa.ChunkedArray | pa.Scalar, dimension: int) -> NDArray[Any]:
    """Return vectors of Arrow's as an array: (q, d) of a column of lists, or of one list alone.

    Raises:
        QueryError: vectors, or numbers of them, are null; or they are of several lengths.
    """
    if isinstance(queries, pa.Scalar):
        return _of_arrow(pa.array([queries.as_py()], queries.type), dimension)
    if isinstance(queries.type, pa.BaseExtensionType):
        queries = queries.cast(queries.type.storage_type)
    if not isinstance(queries.type, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        if queries.null_count:
            raise QueryError("queries hold null; give numbers")
        return np.asarray(queries)
    if queries.null_count:
        first = pc.index(pc.is_null(queries), True).as_py()
        raise QueryError(f"query {first} is null; give rows that have a vector")
    lengths = pc.unique(pc.list_value_length(queries)).to_pylist()
    if len(lengths) > 1:
        raise QueryError(
            f"queries have {lengths[0]} and {lengths[1]} numbers; all need {dimension}"
        )
    numbers = pc.list_flatten(queries)
    if numbers.null_count:
        raise QueryError("queries hold null among their numbers; give numbers")
    return np.asarray(numbers).reshape(len(queries), *(lengths or [dimension]))
