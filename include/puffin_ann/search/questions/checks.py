"""Refuse what cannot be asked, before anything is searched for it, and answers of no order."""

import logging
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puffin_ann.errors import QueryError, StaleIndexError
from puffin_ann.lake.read.conditions.text import shortened
from puffin_ann.settings import StalePolicy
from puffin_ann.wording import counted

log = logging.getLogger("puffin_ann")

Freshness = Literal["exact", "indexed"]

MOST_WIDTH = 1 << 20
"""Widest search: who keeps a million candidates of a shard is served better by comparing all."""

MOST_PROBED = 1 << 31
"""More cells, or data files, than any index has: to probe more is to probe all."""

_FRESHNESS, _POLICIES = get_args(Freshness), get_args(StalePolicy)


def shown(value: object) -> str:
    """Return what was given instead of a number as messages have it: of what is long the beginning.

    Python itself refuses to write numbers of thousands of digits.
    """
    try:
        return shortened(repr(value))
    except ValueError:
        return "a number of thousands of digits"


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
        f"index {index!r} of {table} does not cover {counted(rows, 'row')} in "
        f"{counted(files, 'data file')} of snapshot {snapshot_id}"
    )
    refresh = f"'puffin-ann refresh {index}' takes them in"
    if policy == "warn":
        log.warning("%s, which are compared one by one; %s", uncovered, refresh)
        return
    raise StaleIndexError(
        f"{uncovered}, and stale_policy='fail' lets none be scanned; {refresh}, "
        "stale_policy='scan' compares them, in Python freshness='indexed' leaves them out"
    )


def checked_width(width: int | None) -> int | None:
    """Return a search width that was given, or None.

    Raises:
        QueryError: it is no whole number, or none of candidates that a search may keep.
    """
    if width is None:
        return None
    _check_effort("width", width)
    if width > MOST_WIDTH:
        raise QueryError(
            f"width is {shown(int(width))}; it must be at most {MOST_WIDTH}; exhaustive=True, "
            "--exhaustive on the command line, compares every row"
        )
    return int(width)


def checked_probe(probe_partitions: int | None) -> int | None:
    """Return how many cells, or data files, to probe, or None.

    Raises:
        QueryError: it is no whole number of at least 1.
    """
    if probe_partitions is None:
        return None
    _check_effort("probe_partitions", probe_partitions)
    return min(int(probe_partitions), MOST_PROBED)


def require_no_effort(width: int | None, probe_partitions: int | None) -> None:
    """Refuse to be told how hard to look by a search that compares every row.

    Raises:
        QueryError: names what was given.
    """
    for name, value in (("width", width), ("probe_partitions", probe_partitions)):
        if value is not None:
            option = name.replace("_", "-")
            raise QueryError(
                f"give either exhaustive, which compares every row, or {name} (--{option} on the "
                "command line), not both"
            )


def _check_effort(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise QueryError(f"{name} is {shown(value)}; it must be a whole number of at least 1")
    if value < 1:
        raise QueryError(f"{name} is {shown(int(value))}; it must be at least 1")


def count_zeros(queries: NDArray[np.float32], metric: str, index: str) -> int:
    """Return how many queries have no direction, which `cosine` compares, and warn of any.

    Args:
        queries: (q, d) float32.
        metric: they are compared by.
        index: its name.
    """
    if metric != "cosine":
        return 0
    zeros = ~queries.any(axis=1)
    count = int(np.count_nonzero(zeros))
    if count:
        log.warning("index %r: %s", index, told_zeros(count))
    return count


def told_zeros(count: int) -> str:
    """Return in words what becomes of queries of zeros."""
    queries = "1 query is" if count == 1 else f"{count} queries are"
    return f"{queries} all zeros, without a direction: by cosine no row is nearer than another"


def checked_distance(distance: float) -> float:
    """Return a distance to search within.

    Raises:
        QueryError: it is no number.
    """
    if isinstance(distance, bool) or not isinstance(distance, int | float | np.number):
        raise QueryError(f"distance is {shown(distance)}; it must be a number")
    try:
        number = float(distance)
    except OverflowError:
        raise QueryError("distance is a number beyond float64") from None
    if np.isnan(number):
        raise QueryError("distance is NaN; it must be a number")
    return number


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
