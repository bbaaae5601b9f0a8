"""Conclude from a few rows of a table how an index over it is best declared; pure."""

import math
from collections.abc import Collection
from typing import Any, NamedTuple

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.declaration.fields.names import as_name, is_name
from puffin_ann.errors import BadInputError
from puffin_ann.lifecycle.declare.look import Seen
from puffin_ann.wording import counted

SHARD_BYTES = 512 << 20
"""Bytes of vectors in a shard at most; its blob is then well below 2 GiB with any algorithm."""
UNIT = 1e-3
"""Norms that differ from 1 by no more count as 1: float32 and many embedding services round."""


class Line(NamedTuple):
    """A field of a declaration, and why it has its value."""

    field: str
    value: Any
    reason: str


def suggest(
    seen: Seen,
    *,
    name: str | None = None,
    key: str | None = None,
    metric: str | None = None,
    taken: Collection[str] = (),
) -> list[Line]:
    """Suggest how to declare an index.

    Args:
        seen: of the table.
        name: of the index; None for one made of the table's name.
        key: its key column; None for the most likely one, if there is any.
        metric: None for the one that the vectors suggest.
        taken: names that other indexes have.

    Raises:
        BadInputError: the name is taken, or no name of an index.
    """
    return [
        Line("name", _name(seen, name, taken), "of the index, and of its DAGs"),
        Line("table", seen.table, counted(seen.rows, "row")),
        Line("column", seen.column, f"{seen.kind} of {seen.dimension} numbers"),
        *_key(seen, key),
        _metric(seen, metric),
        _shards(seen),
        Line(
            "recall_target",
            IndexDeclaration.model_fields["recall_target"].default,
            "a build that measures less publishes nothing",
        ),
    ]


def _name(seen: Seen, name: str | None, taken: Collection[str]) -> str:
    if name is None:
        name = as_name(seen.table.rsplit(".", 1)[-1])
        if name in taken:
            name = as_name(f"{name}_{seen.column}")
    if not is_name(name):
        raise BadInputError(
            f"{name!r} is no name of an index: a lower-case letter, then up to 62 of those, digits "
            "and _; give one"
        )
    if name in taken:
        raise BadInputError(f"an index {name!r} is declared already; give another name")
    return name


def _key(seen: Seen, key: str | None) -> list[Line]:
    if key is not None:
        return [Line("key", key, "names a row beside its vector")]
    if not seen.keys:
        return []
    reason = f"no value came twice in {seen.looked_at:,} of {counted(seen.rows, 'row')}"
    if seen.keys[1:]:
        reason += f"; nor in {', '.join(seen.keys[1:4])}"
    return [Line("key", seen.keys[0], reason)]


def _metric(seen: Seen, metric: str | None) -> Line:
    if metric is not None:
        return Line("metric", metric, "cosine, l2 or ip")
    if max(abs(seen.shortest - 1), abs(seen.longest - 1)) <= UNIT:
        return Line("metric", "cosine", "all vectors have length 1: l2 and ip rank rows alike")
    if seen.is_counts:
        return Line("metric", "l2", "whole numbers, none negative; or cosine, ip")
    lengths = f"lengths are {seen.shortest:.3g} to {seen.longest:.3g}"
    return Line("metric", "cosine", f"{lengths}, which cosine ignores; l2 and ip do not")


def _shards(seen: Seen) -> Line:
    size = seen.rows * seen.dimension * 4
    shards = max(1, math.ceil(size / SHARD_BYTES))
    return Line("shards", shards, f"{_told(size)} of vectors, at most 512 MiB a shard")


def _told(size: int) -> str:
    """Return bytes as people write them, of small tables in kB."""
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{max(size / 1e3, 1):,.0f} kB"
