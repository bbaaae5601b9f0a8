"""Which searches are tried for an index, and which of them is taken."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from puffin_ann.declaration import EXACT
from puffin_ann.lifecycle.evaluate.effort import Efforts
from puffin_ann.lifecycle.evaluate.measure import FEW_QUERIES, Measure
from puffin_ann.lifecycle.evaluate.tune import (
    UNTUNED_WIDTH,
    WIDTHS,
    choose_widths,
    widen,
)
from tests.support.lifecycle.indexes_in_cells import index_in_cells


class Meter:
    """Finds enough where a rule of width and cells says so.

    Queries lie at the begin of the first cell, and their true neighbours in the one told.
    """

    def __init__(self, is_enough, *, queries: int = 200, k: int = 10, cell: int = 0) -> None:
        self.queries, self.k = np.full((queries, 1), -1.0, np.float32), k
        self.truth = SimpleNamespace(cells=np.full((queries, k), cell, np.int32))
        self._is_enough = is_enough
        self.asked: list[tuple[int, int]] = []

    def measure(self, index, *, width, probe_partitions):
        self.asked.append((width, probe_partitions))
        low = self._is_enough(width, probe_partitions)
        return Measure(1.0, float(low), 1.0, len(self.queries))


def test_the_width_taken_is_the_smallest_that_is_enough():
    meter = Meter(lambda width, probe: width >= 40)
    assert choose_widths(index_in_cells(shards=1), meter, target=0.9, cells=8) == (40, 8)
    assert {probe for _, probe in meter.asked} == {8}  # of one shard every cell is probed anyway


@pytest.mark.parametrize("algorithm", ["vamana", "hnsw", "ivf_pq"])
@pytest.mark.parametrize("product", [64, 128, 512, 2048])
def test_more_cells_need_less_width_and_the_cheapest_pair_is_taken(algorithm, product):
    def is_enough(width, probe):
        return width * probe >= product

    index, meter = index_in_cells(algorithm), Meter(is_enough)
    efforts = Efforts(index, meter)
    pairs = itertools.product(WIDTHS, (1, 2, 3, 4, 6, 8))
    least = min(efforts.of(*pair) for pair in pairs if is_enough(*pair))
    chosen = choose_widths(index, meter, target=0.9, cells=8)
    assert is_enough(*chosen)
    assert efforts.of(*chosen) == least


def test_cells_that_save_no_width_are_tried_no_wider():
    meter = Meter(lambda width, probe: width >= 20 and probe >= 2)
    assert choose_widths(index_in_cells(), meter, target=0.9, cells=8) == (20, 2)
    # To probe one cell would save a shard of those that two lead to, less than width 24 costs more.
    assert {pair for pair in meter.asked if pair[0] > 32} == set()


def test_the_effort_of_a_search_is_its_width_in_each_shard_and_what_it_takes_to_enter():
    meter = Meter(lambda *_: True)
    efforts = Efforts(index_in_cells("hnsw"), meter)
    assert efforts.of(40, 1) == 40 + 8  # two cells a shard: the first of them alone
    assert efforts.of(40, 2) == 40 + 8
    assert efforts.of(40, 8) == 40 + 8 + 3 * (max(10, 0.25 * 40) + 8)  # the others are far
    assert efforts.of(16, 8) == 16 + 8 + 3 * (10 + 8)  # no narrower than its rows
    assert Efforts(index_in_cells("ivf_pq"), meter).of(40, 1) == 40 + 100


@pytest.mark.parametrize(("low", "expected"), [(0.924, (WIDTHS[-1], 8)), (0.926, (WIDTHS[0], 1))])
def test_a_search_has_to_exceed_the_target_by_a_quarter_of_the_rest(low, expected):
    meter = Meter(lambda width, probe: low)
    assert choose_widths(index_in_cells(), meter, target=0.9, cells=8) == expected


def test_where_nothing_is_enough_the_search_is_as_wide_as_can_be():
    meter = Meter(lambda width, probe: False)
    assert choose_widths(index_in_cells(), meter, target=0.9, cells=5) == (WIDTHS[-1], 5)


@pytest.mark.parametrize(("k", "width"), [(10, UNTUNED_WIDTH), (100, 400)])
def test_of_few_queries_nothing_is_concluded_and_every_cell_probed(k, width):
    meter = Meter(lambda *_: True, queries=FEW_QUERIES - 1, k=k)
    assert choose_widths(index_in_cells(), meter, target=0.9, cells=8) == (width, 8)
    assert meter.asked == []


def test_an_exact_index_probes_every_cell_whatever_its_queries_find():
    meter = Meter(lambda *_: True)
    assert choose_widths(index_in_cells(EXACT), meter, target=0.9, cells=8)[1] == 8
    assert meter.asked == []


def test_of_an_index_without_cells_there_is_nothing_to_choose():
    meter = Meter(lambda *_: True)
    assert choose_widths(index_in_cells(cells=0), meter, target=0.9, cells=1) == (WIDTHS[0], 0)


def test_no_more_cells_are_probed_than_there_are():
    meter = Meter(lambda width, probe: True)
    choose_widths(index_in_cells(), meter, target=0.9, cells=5)
    assert {probe for _, probe in meter.asked} <= {1, 2, 3, 4, 5}


@pytest.mark.parametrize(("cell", "fewest"), [(0, 1), (40, 48), (127, 128)])
def test_no_cells_are_tried_that_do_not_lead_to_the_true_neighbours(cell, fewest):
    """They were tried one by one, each with every width that could still have been faster."""
    meter = Meter(lambda width, probe: width >= 20, cell=cell)
    chosen = choose_widths(index_in_cells(cells=128), meter, target=0.9, cells=128)
    assert chosen == (20, fewest)
    assert min(probe for _, probe in meter.asked) == fewest
    assert len(meter.asked) <= 8


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("least", [16, 64, 256])
def test_wide_searches_are_not_tried_where_narrow_ones_are_enough(shards, least):
    """What choosing costs is counted in candidates that a query keeps, over all that is tried."""
    meter = Meter(lambda width, probe: width >= least and width * probe >= 8 * least)
    choose_widths(index_in_cells(shards=shards, cells=128), meter, target=0.9, cells=128)
    assert max(width for width, _ in meter.asked) <= 2 * shards * least
    assert sum(width for width, _ in meter.asked) <= 64 * least
    assert len(set(meter.asked)) == len(meter.asked)


@pytest.mark.parametrize("least", WIDTHS)
def test_every_width_can_be_the_narrowest(least):
    meter = Meter(lambda width, probe: width >= least)
    assert choose_widths(index_in_cells(shards=1), meter, target=0.9, cells=8) == (least, 8)


class Rest:
    """Queries that find as much as their rule says of width and cells."""

    def __init__(self, recall) -> None:
        self._recall = recall

    def measure(self, index, *, width, probe_partitions):
        found = self._recall(width, probe_partitions)
        return Measure(found, found - 0.01, found + 0.01, 200)


@pytest.mark.parametrize(
    ("recall", "chosen", "expected"),
    [
        (lambda width, probe: 0.9, (20, 3), (20, 3, 0.9)),
        (lambda width, probe: 0.89 + (width >= 28) / 50, (20, 3), (28, 6, 0.91)),
        (lambda width, probe: 0.89 + (probe >= 6) / 50, (20, 3), (28, 6, 0.91)),
        (lambda width, probe: 0.89 + (width >= 48) / 50, (20, 8), (48, 8, 0.91)),
        (lambda width, probe: 0.5, (20, 3), (WIDTHS[-1], 8, 0.5)),
        (lambda width, probe: 0.5, (WIDTHS[-1], 2), (WIDTHS[-1], 8, 0.5)),
        (lambda width, probe: 0.89 + (width >= 384) / 50, (250, 8), (256 * 3 // 2, 8, 0.91)),
    ],
)
def test_a_search_that_other_queries_find_too_little_by_is_widened(recall, chosen, expected):
    """It was refused: of many searches the one is chosen that the tuning queries flatter."""
    width, probe, found = widen(index_in_cells(), Rest(recall), chosen, target=0.9, cells=8)
    assert (width, probe, pytest.approx(found.recall)) == expected
