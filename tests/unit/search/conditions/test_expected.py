"""What a search is told to take counts all that it does, in the search that does it."""

import pytest

from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.ann.exact.kernels_products import HAS_DOTS
from puffin_ann.search.conditions import expected, ways
from puffin_ann.search.conditions.paces import STEP, Work, pace

ROWS, DIMENSION = 20_000, 100
NUMBERS = ROWS * DIMENSION
LATER, DONE = Coding.LATER, Coding.DONE


def test_rows_are_gathered_once_and_all_of_that_is_told_then():
    first = expected.of_gathered(ROWS, DIMENSION, 1, 4, None)
    known = DONE if HAS_DOTS else LATER
    again = expected.of_gathered(ROWS, DIMENSION, 1, 4, (known, known))
    gathered = 4 * expected.SHARD_COPIED + ways.GATHERED * NUMBERS
    assert first.once == pytest.approx(gathered)
    assert again.once == 0.0
    assert first.seconds - again.seconds == pytest.approx(first.once)


def test_copies_are_coded_in_the_search_that_does_it():
    """Where bytes are not multiplied at once, copies are coded once more queries have asked."""
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
    assert now.once == pytest.approx(ways.CODED * NUMBERS)
    assert now.seconds - after.seconds == pytest.approx(now.once)
    assert (after.seconds < before.seconds) is HAS_DOTS


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
    before = ways.compared(ROWS, DIMENSION, 1, 1.0), expected.gathering(ROWS, DIMENSION, 4)
    few = expected.NUMBERS_THAT_TELL // DIMENSION
    expected.note_gathering(few, DIMENSION, 4, 1.0)
    assert pace(Work.GATHER) == 1.0
    expected.note_gathering(ROWS, DIMENSION, 4, 1.0)
    assert pace(Work.GATHER) == STEP
    more = (STEP - 1) * ways.GATHERED * NUMBERS
    assert ways.compared(ROWS, DIMENSION, 1, 1.0) - before[0] == pytest.approx(more)
    assert expected.gathering(ROWS, DIMENSION, 4) - before[1] == pytest.approx(more)
