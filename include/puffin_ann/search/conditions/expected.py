"""What a search is expected to take now, for whoever is told; see `ways` for what it is chosen by.

To choose a way, what is done once is dealt out among all queries that have asked, and what every
way does beside is left out. Whoever compares with a clock counts both: rows that this search
gathers or codes take its own time, and a call with one query is mostly the way there and back.

The figures were measured on two cores of an EPYC, of 19,000 × 100, 59,000 × 384 and 300,000 × 128
rows in four shards that caches held: the second least of twelve conditions.
"""

from typing import NamedTuple

from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.ann.exact.kernels_products import HAS_DOTS
from puffin_ann.ann.signs.row_codes import RowCodes
from puffin_ann.ann.signs.selected_rows import coding_when_gathered
from puffin_ann.search.conditions import ways
from puffin_ann.search.conditions.paces import Work, learn

CALLED_FOR_GATHERED = 28e-6
"""Seconds of a call that compares gathered rows, however many rows and queries."""

ASKED = 2.3e-6
"""Seconds of each query beside, to code it and to keep its nearest rows in order: 1.1 µs of 38
rows, 3 µs of hundreds."""

SHARD_COPIED = 45e-6
"""Seconds for each shard, to find its rows that may be answered and their places."""

SEARCHED = 20e-6
"""Seconds of each call that searches a shard alone."""

LEFT_OUT = 2.3e-9
"""Seconds for each row of a shard, in a call that compares some of its rows where they lie."""

NUMBERS_THAT_TELL = 1 << 20
"""To copy fewer takes so little that whatever else the machine does decides it."""

MOSTLY = 0.5
"""Of rows that are gathered by their signs, the share with known ones from which on what it took is
taken for what it takes to order them, not to code them."""


class Expected(NamedTuple):
    """Seconds of one thread.

    Attributes:
        seconds: of all that is done.
        once: of those, to gather and code rows, which further searches are spared.
    """

    seconds: float
    once: float


def of_gathered(
    rows: int,
    dimension: int,
    queries: int,
    shards: int,
    coding: tuple[Coding, Coding] | None,
    signs: RowCodes | None = None,
) -> Expected:
    """Return what it takes to compare gathered rows, and before to gather them.

    Args:
        rows: that may be answered.
        dimension: of their vectors.
        queries: asked at once.
        shards: that they are of.
        coding: of them, before and after this search; None if they are not gathered yet.
        signs: which conditions share; None: none.
    """
    before, after = coding or coding_when_gathered(rows, dimension, queries, signs)
    known = 0.0 if signs is None else signs.share
    by_signs = after is Coding.SIGNS
    once = 0.0 if coding else gathering(rows, dimension, shards, known, by_signs=by_signs)
    is_made_now = before is not after and after in (Coding.SIGNS, Coding.DONE)
    if is_made_now and (HAS_DOTS or by_signs):
        once += ways.of_gathering(rows, dimension, known, by_signs=by_signs)
    elif is_made_now:
        once += ways.CODED * rows * dimension
    if by_signs:
        each = ways.of_signs(rows, dimension)
    else:
        by_codes = after is Coding.DONE
        each = ways.of_a_number(dimension, queries, by_codes=by_codes) * rows * dimension
    return Expected(once + CALLED_FOR_GATHERED + (ASKED + each) * queries, once)


def in_place(
    rows: int,
    all_rows: int,
    dimension: int,
    queries: int,
    coding: tuple[Coding, Coding],
    *,
    has_others: bool,
) -> Expected:
    """Return what it takes to compare rows of a shard where they lie.

    Args:
        rows: that are compared.
        all_rows: of the shard.
        dimension: of their vectors.
        queries: asked at once.
        coding: of all rows of the shard, before and after this search.
        has_others: whether rows between them are left out.
    """
    before, after = coding
    by_codes = after is Coding.DONE
    is_coded_now = by_codes and before is not Coding.DONE
    once = ways.CODED_IN_PLACE * all_rows * dimension if is_coded_now else 0.0
    beside = ways.CALLED_TO_COMPARE + (LEFT_OUT * all_rows if has_others else 0.0)
    each = ways.of_a_number(dimension, queries, by_codes=by_codes) * rows * dimension
    return Expected(once + beside + each * queries, once)


def gathering(
    rows: int, dimension: int, shards: int, known: float = 0.0, *, by_signs: bool
) -> float:
    """Return the seconds to gather rows of some shards; see `ways.of_gathering`."""
    once = ways.of_gathering(rows, dimension, known, by_signs=by_signs)
    return shards * SHARD_COPIED + once


def note_gathering(
    rows: int, dimension: int, shards: int, seconds: float, known: float = 0.0, *, by_signs: bool
) -> None:
    """Learn from rows that were gathered; memory costs more on some machines than others.

    Args:
        rows: as many as were gathered.
        dimension: of their vectors.
        shards: that they are of.
        seconds: that it took.
        known: share of all rows whose signs had been known.
        by_signs: whether they were gathered to be compared so.
    """
    if rows * dimension >= NUMBERS_THAT_TELL:
        work = Work.ORDER if by_signs and known > MOSTLY else Work.GATHER
        cost = gathering(rows, dimension, shards, known, by_signs=by_signs)
        learn(work, "", cost, seconds)
