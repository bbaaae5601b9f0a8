"""Which searches are taken for more rows than the gate's k."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from puffin_ann.blobs.version.gate import Wider
from puffin_ann.declaration import EXACT
from puffin_ann.lifecycle.evaluate.measure import Measure
from puffin_ann.lifecycle.evaluate.more_rows import MOST, choose_wider, depth
from tests.support.lifecycle.indexes_in_cells import index_in_cells

CELLS, QUERIES = 8, 60


@dataclass
class Meter:
    """Finds enough by a width of twice the rows; a tenth of the neighbours lie in each tenth."""

    k: int = 10
    known: int = 80
    queries: Any = field(default_factory=lambda: np.full((QUERIES, 1), -1.0, np.float32))
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    enough: int = 10**9

    @property
    def truth(self) -> Any:
        distances = np.tile(np.arange(self.known, dtype=np.float32), (QUERIES, 1))
        cells = np.minimum(distances // 10, CELLS - 1).astype(np.int32)
        return SimpleNamespace(distances=distances, cells=cells)

    def measure(self, index, *, width, probe_partitions):
        self.asked.append((self.k, width, probe_partitions))
        return Measure(1.0, float(2 * self.k <= width <= self.enough), 1.0, QUERIES)


def test_the_narrowest_width_is_taken_over_as_many_cells_as_hold_the_neighbours():
    # Two cells are a shard: its other cell is as good as probed where one is.
    expected = (Wider(20, 40, 1), Wider(40, 80, 3), Wider(80, 160, 7))
    assert choose_wider(index_in_cells(), Meter(), (16, 1), target=0.9) == expected


def test_no_search_is_tried_that_is_narrower_than_the_last_or_than_its_rows():
    meter = Meter()
    choose_wider(index_in_cells(), meter, (48, 1), target=0.9)
    assert all(width >= k for k, width, _ in meter.asked)
    # As wide as for fewer rows is tried only where the next width is enough.
    assert meter.asked == [(20, 56, 1), (20, 48, 1), (40, 56, 3), (40, 64, 3), (40, 80, 3),
                           (80, 96, 7), (80, 112, 7), (80, 128, 7), (80, 160, 7)]  # fmt: skip


def test_where_no_search_finds_enough_those_for_fewer_rows_are_kept():
    assert choose_wider(index_in_cells(), Meter(enough=100), (16, 8), target=0.9) == (
        Wider(20, 40, 8),
        Wider(40, 80, 8),
    )


def test_more_rows_than_the_table_has_are_not_searched_for():
    assert [
        one.rows for one in choose_wider(index_in_cells(), Meter(known=50), (16, 8), target=0.9)
    ] == [
        20,
        40,
    ]


@pytest.mark.parametrize("cells", [CELLS, 0])
def test_nothing_is_chosen_where_nothing_is_for_k(cells):
    few = Meter(queries=np.zeros((10, 1), np.float32))
    assert choose_wider(index_in_cells(), few, (16, 1), target=0.9) == ()
    assert choose_wider(index_in_cells(EXACT), Meter(), (16, 1), target=0.9) == ()
    if not cells:
        assert choose_wider(index_in_cells(cells=0), Meter(), (16, 1), target=0.9) == ()


def test_as_many_neighbours_are_known_as_are_searched_for():
    assert (depth(10), depth(100), depth(1000)) == (80, 200, 1000)
    assert depth(40) == MOST
