"""What a search is told to take counts all that it does, in the search that does it."""

import pytest

from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.ann.exact.kernels_products import HAS_DOTS
from puffin_ann.search.conditions import expected, ways
from puffin_ann.search.conditions.paces import STEP, Work, pace

ROWS, DIMENSION = 20_000, 100
NUMBERS = ROWS * DIMENSION
MANY = 1000
"""Queries at once that rows are coded for by a byte a number, before any others asked."""
LATER, DONE, SIGNS = Coding.LATER, Coding.DONE, Coding.SIGNS


@pytest.mark.parametrize("queries", [1, 1000])
def test_rows_are_gathered_once_and_all_of_that_is_told_then(queries):
    known = SIGNS if queries == 1 else DONE
    first = expected.of_gathered(ROWS, DIMENSION, queries, 4, None)
    again = expected.of_gathered(ROWS, DIMENSION, queries, 4, (known, known))
    times = ways.SIGNED if queries == 1 else 1.0
    gathered = 4 * expected.SHARD_COPIED + times * ways.GATHERED * NUMBERS
    if not HAS_DOTS and queries > 1:
        gathered += ways.CODED * NUMBERS
    assert first.once == pytest.approx(gathered)
    assert again.once == 0.0
    assert first.seconds - again.seconds == pytest.approx(first.once)


def test_rows_are_coded_in_the_search_that_does_it():
    """They are once more queries ask at once, or where bytes are not multiplied have asked."""
    one, before, now, after = (
        expected.of_gathered(ROWS, DIMENSION, queries, 4, coding)
        for queries, coding in (
            (1, (LATER, LATER)),
            (20, (LATER, LATER)),
            (20, (LATER, DONE)),
            (20, (DONE, DONE)),
        )
    )
    assert one.seconds > ways.COMPARED.of(1) * NUMBERS
    assert before.once == after.once == 0.0
    assert now.once == pytest.approx((ways.GATHERED if HAS_DOTS else ways.CODED) * NUMBERS)
    assert now.seconds - after.seconds == pytest.approx(now.once)
    assert (after.seconds < before.seconds) is HAS_DOTS


def test_signs_are_made_in_the_search_that_does_it():
    now = expected.of_gathered(ROWS, DIMENSION, 1, 4, (LATER, SIGNS))
    after = expected.of_gathered(ROWS, DIMENSION, 1, 4, (SIGNS, SIGNS))
    assert now.once == pytest.approx(ways.SIGNED * ways.GATHERED * NUMBERS)
    assert now.seconds - after.seconds == pytest.approx(now.once)
    assert after.seconds < expected.of_gathered(ROWS, DIMENSION, 1, 4, (DONE, DONE)).seconds


def test_rows_whose_signs_are_known_are_gathered_in_less_time():
    none, half, all_ = (
        expected.gathering(ROWS, DIMENSION, 4, part, by_signs=True) for part in (0, 0.5, 1)
    )
    assert none - half == pytest.approx(half - all_)
    assert all_ < 0.5 * none
    none, all_ = (expected.gathering(ROWS, DIMENSION, 4, part, by_signs=False) for part in (0, 1))
    assert none == all_


@pytest.mark.parametrize("dimension", [100, 384, 1536, 4096])
@pytest.mark.parametrize("queries", [1, 1000])
def test_no_row_of_any_dimension_costs_nothing(dimension, queries):
    """What was measured at two dimensions grows from one to the other, and no further."""
    one, twice = (
        ways.compared(rows, dimension, queries, 1e9, by_signs=queries == 1)
        for rows in (50_000, 100_000)
    )
    assert 0 < one < twice


def test_of_few_rows_most_is_the_call_and_what_is_done_for_each_query():
    few = expected.of_gathered(20, 8, 100, 1, (LATER, LATER))
    assert few.seconds > expected.CALLED_FOR_GATHERED + 100 * expected.ASKED
    assert few.seconds < 1.1 * (expected.CALLED_FOR_GATHERED + 100 * expected.ASKED)


def test_rows_in_place_are_coded_once_and_those_between_are_passed():
    def told(queries, coding, *, has_others=False):
        return expected.in_place(ROWS, ROWS, DIMENSION, queries, coding, has_others=has_others)

    now, later = told(20, (LATER, DONE)), told(20, (DONE, DONE))
    assert now.once == pytest.approx(ways.CODED_IN_PLACE * NUMBERS)
    assert now.seconds - later.seconds == pytest.approx(now.once)
    assert told(1, (LATER, LATER)).once == 0.0
    masked = told(20, (DONE, DONE), has_others=True)
    assert masked.seconds - later.seconds == pytest.approx(expected.LEFT_OUT * ROWS)


def test_what_gathering_took_is_learned_and_counts_in_the_choice():
    def costs():
        gathering = expected.gathering(ROWS, DIMENSION, 4, by_signs=False)
        return ways.compared(ROWS, DIMENSION, MANY, 1.0, by_signs=False), gathering

    before = costs()
    few = expected.NUMBERS_THAT_TELL // DIMENSION
    expected.note_gathering(few, DIMENSION, 4, 1.0, by_signs=False)
    assert pace(Work.GATHER) == 1.0
    expected.note_gathering(ROWS, DIMENSION, 4, 1.0, by_signs=False)
    assert pace(Work.GATHER) == STEP
    more = (STEP - 1) * ways.GATHERED * NUMBERS
    assert costs() == pytest.approx([cost + more for cost in before])


def test_gathering_rows_whose_signs_are_known_is_learned_apart():
    rows, dimension = 100_000, 128
    made = expected.gathering(rows, dimension, 4, by_signs=True)
    expected.note_gathering(rows, dimension, 4, 1.0, 0.9, by_signs=True)
    assert (pace(Work.ORDER), pace(Work.GATHER)) == (STEP, 1.0)
    assert expected.gathering(rows, dimension, 4, by_signs=True) == made
    by_bytes = expected.gathering(rows, dimension, 4, 0.9, by_signs=False)
    expected.note_gathering(rows, dimension, 4, 1.0, 0.9, by_signs=False)
    assert (pace(Work.ORDER), pace(Work.GATHER)) == (STEP, STEP)
    assert expected.gathering(rows, dimension, 4, 0.9, by_signs=False) > by_bytes
