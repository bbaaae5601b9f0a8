"""Refuse what cannot be asked, before anything is searched for it, and answers of no order."""

import logging
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from puffin_ann.ann.core.memmap import as_asked
from puffin_ann.errors import QueryError, StaleIndexError
from puffin_ann.settings import StalePolicy

log = logging.getLogger("puffin_ann")

Freshness = Literal["exact", "indexed"]

_FRESHNESS, _POLICIES = get_args(Freshness), get_args(StalePolicy)


def checked_queries(queries: ArrayLike, dimension: int, index: str) -> NDArray[np.float32]:
    """Return queries as (q, dimension) float32 for kernels; one alone may be (dimension,).

    Args:
        queries: as they were given.
        dimension: numbers in a vector of the index.
        index: its name.

    Raises:
        QueryError: they are no finite numbers, or of another shape.
    """
    if isinstance(queries, np.ndarray) and queries.dtype == np.float32:
        batch = np.ascontiguousarray(queries)
    else:
        batch = _as_float32(queries)
    if batch.ndim == 1:
        batch = batch[None, :]
    if batch.ndim != 2 or batch.shape[1] != dimension:
        raise QueryError(
            f"queries have shape {batch.shape}; index {index!r} needs (n, {dimension})"
        )
    finite = np.isfinite(batch)
    if not finite.all():
        bad = np.flatnonzero(~finite.all(axis=1))[0]
        raise QueryError(f"query {bad} holds a NaN or infinite value (float32)")
    return as_asked(batch)


def _as_float32(queries: ArrayLike) -> NDArray[np.float32]:
    """Return numbers of any kind; beyond float32 they become infinite.

    Raises:
        QueryError: they are none.
    """
    if np.iscomplexobj(queries):
        raise QueryError("queries are complex numbers; give real ones")
    try:
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(queries, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise QueryError(f"queries are not numbers of one dimension: {error}") from None


def checked_freshness(freshness: Freshness) -> None:
    """Require one of the allowed values.

    Raises:
        QueryError: it is none.
    """
    if freshness not in _FRESHNESS:
        raise QueryError(f"freshness is {freshness!r}; allowed: 'exact', 'indexed'")


def checked_stale_policy(policy: StalePolicy) -> None:
    """Require one of the allowed values.

    Raises:
        QueryError: it is none.
    """
    if policy not in _POLICIES:
        allowed = ", ".join(map(repr, _POLICIES))
        raise QueryError(f"stale_policy is {policy!r}; allowed: {allowed}")


def heed_scan(
    policy: StalePolicy, index: str, table: str, snapshot_id: int, rows: int, files: int
) -> None:
    """Do what a policy says of a search that compares rows outside the index.

    Args:
        policy: asked for.
        index: its name.
        table: its name.
        snapshot_id: that is searched.
        rows: how many are outside the index and would be compared.
        files: in which they are.

    Raises:
        StaleIndexError: they must not be.
    """
    if policy == "scan":
        return
    uncovered = (
        f"index {index!r} of {table} does not cover {rows} rows in {files} data files of snapshot "
        f"{snapshot_id}"
    )
    refresh = f"'puffin-ann refresh {index}' takes them in"
    if policy == "warn":
        log.warning("%s, which are compared one by one; %s", uncovered, refresh)
        return
    raise StaleIndexError(
        f"{uncovered}, and stale_policy='fail' lets none be scanned; {refresh}, "
        "stale_policy='scan' compares them, in Python freshness='indexed' leaves them out"
    )


def checked_distance(distance: float) -> float:
    """Return a distance to search within.

    Raises:
        QueryError: it is no number.
    """
    if isinstance(distance, bool) or not isinstance(distance, int | float | np.number):
        raise QueryError(f"distance is {distance!r}; it must be a number")
    if np.isnan(distance):
        raise QueryError("distance is NaN; it must be a number")
    return float(distance)


def require_products(found: pa.Table) -> None:
    """Refuse answers by inner products beyond float32, which were cut to the same number.

    Raises:
        QueryError: names the query.
    """
    beyond = np.abs(found.column("distance").to_numpy()) >= np.finfo(np.float32).max
    if beyond.any():
        query = found.column("query").to_numpy()[beyond][0]
        raise QueryError(
            f"query {query} has inner products beyond float32, 3.4e38, of which no order is kept; "
            "scale it"
        )
