"""How widely more rows are searched for than the gate asked for."""

from dataclasses import replace

import pytest

from puffin_ann.blobs.version.gate import Wider
from puffin_ann.search.shards.reach import WIDEST, Reach
from tests.support.indexes.blob_samples import sample_routing

ROUTING = replace(sample_routing(cells=64), search_width=20, probe_partitions=4, wider=())
MEASURED = replace(ROUTING, wider=(Wider(20, 30, 5), Wider(40, 60, 9)))


@pytest.mark.parametrize(
    ("rows", "width", "cells"), [(5, 20, 4), (10, 20, 4), (15, 25, 5), (20, 30, 5), (30, 45, 7)]
)
def test_between_two_figures_that_were_measured_a_search_is_as_wide_as_lies_between(
    rows, width, cells
):
    assert Reach(MEASURED).width(rows, None) == width
    assert Reach(MEASURED).cells(rows, None) == cells


def test_beyond_what_was_measured_a_search_grows_with_the_rows():
    for routing in (ROUTING, MEASURED):
        reach = Reach(routing)
        known = [(reach.width(rows, None), reach.cells(rows, None)) for rows in range(10, 500, 7)]
        assert known == sorted(known)
        assert known[-1][0] > 500
        assert known[-1][1] > 9


def test_what_is_asked_for_is_taken_but_no_narrower_than_the_rows():
    assert Reach(MEASURED).width(30, 35) == 35
    assert Reach(MEASURED).width(30, 12) == 30
    assert Reach(MEASURED).width(30, 2 * WIDEST) == WIDEST
    assert Reach(MEASURED).cells(30, 2) == 2


def test_a_width_that_was_asked_for_grows_as_measured():
    reach = Reach(MEASURED)
    assert reach.wider(10, 40, 10) == 40
    assert reach.wider(20, 40, 10) == 60
    assert reach.wider(20, reach.width(10, None), 10) == reach.width(20, None)


def test_beyond_what_was_measured_a_width_that_was_asked_for_grows_by_rows_alone():
    assert Reach(MEASURED).wider(1040, 1000, 10) < 1000 * 3 * 1.2 + 1.5 * 1000
    assert Reach(ROUTING).wider(1010, 1000, 10) == 1100 + 1500
    assert Reach(MEASURED).wider(90, 100, 60) == 110 + 45


def test_a_width_of_nothing_is_taken_for_the_least():
    reach = Reach(replace(ROUTING, search_width=0, probe_partitions=0))
    assert (reach.width(1, None), reach.cells(10, None)) == (1, 1)
    assert reach.wider(20, 10, 10) >= 20


def test_cells_between_equal_figures_are_as_many():
    reach = Reach(replace(MEASURED, probe_partitions=3, wider=(Wider(20, 30, 3), Wider(40, 60, 3))))
    assert {reach.cells(rows, None) for rows in range(10, 41)} == {3}


def test_where_nothing_was_measured_a_width_suffices_for_the_default_k():
    assert Reach(replace(ROUTING, recall=None)).width(10, None) == 20
