"""What a search answers: a table of rows with their distances and places, and what it rests on."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import starmap
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from puffin_ann.errors import QueryError
from puffin_ann.lake.read.data.columns import ColumnReader, DataFile
from puffin_ann.lake.read.data.projection import select

LOCATOR = pa.struct(
    [
        pa.field("file", pa.string()),
        pa.field("row_group", pa.int32()),
        pa.field("row_offset", pa.int64()),
    ]
)

_LOCATOR_FIELDS = list(LOCATOR)

_NUMBERS = [
    pa.field("query", pa.int32()),
    pa.field("rank", pa.int32()),
    pa.field("distance", pa.float32()),
]
_LOCATOR = pa.field("locator", LOCATOR)
OWN = (*(field.name for field in _NUMBERS), _LOCATOR.name)
"""Columns that every answer has."""

JOINED_TEXTS = 4096
"""Up to so many texts are joined: `take` has to be looked up, which takes longer than that."""


@dataclass(frozen=True)
class SearchReport:
    """What an answer was made from; it is JSON in the metadata of the answer's schema.

    A search with `explain=True` adds an `explanation` to that, see `explanation_of`.

    Attributes:
        index_snapshot: snapshot the version used is registered under.
        base_snapshot: snapshot whose rows that version covers.
        snapshot: snapshot that was asked for.
        coverage: share of its live rows that the version covers.
        shards_probed: shards searched, over all queries of the batch; data files compared, where
            the index is of their centroids alone.
        rows_scanned: live rows outside the index that each query was compared with.
        bytes_by_ranges: bytes that were read of shards that are not on local disk, where the rows
            nearest to the queries are; 0 where all that were probed are.
        bytes_of_columns: bytes of data files that were read to fetch the columns asked for; what
            was in memory does not count.
        rows_with_columns: rows answered of which the index had the columns asked for, so that the
            table was not read for them.
        bytes_of_table: bytes of vectors that were read of the table for rows of the index, as they
            are stored there: those that were kept from before do not count.
        queries_of_zeros: queries that are all zeros, by `cosine`: it compares directions, and they
            have none, so that every row is equally far from them.
        where: the condition that every row answered satisfies; None if there was none.
        rows_allowed: live rows of the snapshot that satisfy it, of those that may be answered.
        damaged: what could not be read of the index, so that this version answers instead of a
            better one: one sentence each, naming the file.
    """

    index_snapshot: int | None
    base_snapshot: int
    snapshot: int
    coverage: float
    shards_probed: int
    rows_scanned: int
    bytes_by_ranges: int = 0
    bytes_of_columns: int = 0
    rows_with_columns: int = 0
    bytes_of_table: int = 0
    queries_of_zeros: int = 0
    where: str | None = None
    rows_allowed: int | None = None
    damaged: tuple[str, ...] = ()


Kept = Callable[[Sequence[NestedField]], tuple[NDArray[np.bool_], pa.Table]]
"""Returns which of the rows answered, (n,) bool, have values kept of all columns, and those."""


def checked_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return names of columns that an answer can have beside its own, each once.

    Args:
        columns: as they were given; those of a set, which has no order, are sorted.

    Raises:
        QueryError: they are no names, or there is one that it cannot have.
    """
    if isinstance(columns, tuple) and not columns:
        return ()
    if isinstance(columns, str | bytes):  # iterable, too: by letters
        name = columns if isinstance(columns, str) else columns.decode(errors="replace")
        raise QueryError(f"columns is {columns!r}; it takes a list of names: [{name!r}]")
    try:
        names = tuple(columns)
    except TypeError:
        raise QueryError(f"columns is {columns!r}; it takes a list of names") from None
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise QueryError(f"columns: {wrong[0]!r} is no name; it takes a list of names")
    _require_distinct(names)
    return tuple(sorted(names)) if isinstance(columns, set | frozenset) else names


def _require_distinct(columns: Sequence[str]) -> None:
    """Require columns to be none of the answer's own, and each there once."""
    clash = sorted({*columns} & {*OWN})
    if clash:
        raise QueryError(
            f"column {clash[0]!r} has the name of a result column; rename it in the table or "
            "fetch it by the locator"
        )
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise QueryError(f"columns: {', '.join(map(repr, twice))} named twice; name a column once")


def array_of(values: NDArray[Any]) -> pa.Array:
    """Return (n,) numbers as an Arrow array, which shares their memory.

    To turn its first value into Arrow's, `pa.array` imports pandas where that is installed, a third
    of what a search imports.
    """
    values = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


class Texts:
    """Texts, to be answered many times over.

    Args:
        texts: at least one.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._encoded = [text.encode() for text in texts]
        self._lengths = np.array([len(text) for text in self._encoded], np.int32)

    def at(self, places: NDArray[np.int64]) -> pa.StringArray:
        """Return the texts at some places, (n,) int64."""
        if len(places) > JOINED_TEXTS:
            return self._all.take(array_of(places))
        encoded = self._encoded
        return _strings([encoded[place] for place in places.tolist()], self._lengths[places])

    @cached_property
    def _all(self) -> pa.StringArray:
        return _strings(self._encoded, self._lengths)


def _strings(encoded: Sequence[bytes], lengths: NDArray[np.int32]) -> pa.StringArray:
    """Return texts as an Arrow array; see `array_of`."""
    ends = np.zeros(len(encoded) + 1, np.int32)
    lengths.cumsum(out=ends[1:])
    return pa.StringArray.from_buffers(
        len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))
    )


@lru_cache(maxsize=256)
def _schema(report: SearchReport, columns: tuple[pa.Field, ...]) -> pa.Schema:
    """Return the schema of an answer; the same report comes again with most."""
    metadata = {"puffin_ann": json.dumps(vars(report))}
    return pa.schema([*_NUMBERS, *columns, _LOCATOR], metadata)


def answer_table(
    table: Table,
    files: Texts,
    sizes: NDArray[np.int64],
    query: pa.Array,
    rank: pa.Array,
    distances: NDArray[np.float32],
    keys: NDArray[np.int64],
    columns: Sequence[str],
    schema_of: Callable[[Table], Schema],
    report: SearchReport,
    kept: Kept | None = None,
) -> pa.Table:
    """Return answers, their locators given as ranks of `files`, row groups and offsets.

    Args:
        table: of the rows.
        files: locations of data files, by rank.
        sizes: bytes of each.
        query: (n,) int32, number of the query that each row answers.
        rank: (n,) int32, place among the answers to it, from 1.
        distances: (n,) float32.
        keys: (3, n) int64: rank of the file, row group and row offset.
        columns: to fetch.
        schema_of: returns the table's schema that names them and has their types.
        report: of the answer.
        kept: returns columns of the rows that the index has them of.
    """
    locator = pa.StructArray.from_arrays(
        [
            files.at(keys[0]),
            array_of(keys[1].astype(np.int32)),
            array_of(keys[2]),
        ],
        fields=_LOCATOR_FIELDS,
    )
    own = [query, rank, array_of(distances)]
    fields: tuple[pa.Field, ...] = ()
    if columns:
        schema = schema_of(table)
        reader = ColumnReader(table, columns, schema)
        there, fetched = np.zeros(len(query), np.bool_), None
        if kept is not None:
            fields_asked = select(table, columns, schema).fields
            there, fetched = kept(fields_asked)
            fetched = _with_required(fetched, fields_asked)
        if fetched is None or not there.all():
            rest = _read(reader, files, sizes, keys[:, ~there])
            fetched = rest if fetched is None else _in_order(there, fetched, rest)
        report = replace(
            report, bytes_of_columns=reader.bytes_read, rows_with_columns=int(there.sum())
        )
        fields = tuple(fetched.schema)
        own += fetched.columns
    return pa.Table.from_arrays([*own, locator], schema=_schema(report, fields))


def _read(
    reader: ColumnReader,
    files: Texts,
    sizes: NDArray[np.int64],
    keys: NDArray[np.int64],
) -> pa.Table:
    """Return columns of rows as the table has them."""
    found, numbers = np.unique(keys[0], return_inverse=True)
    named = zip(files.at(found).to_pylist(), sizes[found].tolist(), strict=True)
    return reader.rows(list(starmap(DataFile, named)), numbers, keys[1], keys[2])


def _with_required(found: pa.Table, fields: Sequence[NestedField]) -> pa.Table:
    """Return columns as the table has them: no value of some may be null."""
    if not any(field.required for field in fields):
        return found
    pairs = zip(found.schema, fields, strict=True)
    return found.cast(pa.schema([one.with_nullable(not field.required) for one, field in pairs]))


def _in_order(there: NDArray[np.bool_], those: pa.Table, others: pa.Table) -> pa.Table:
    """Return rows of two tables in one, the first those that are marked."""
    places = np.empty(len(there), np.int64)
    places[there] = np.arange(len(those))
    places[~there] = np.arange(len(those), len(there))
    return pa.concat_tables([those, others]).take(array_of(places))
