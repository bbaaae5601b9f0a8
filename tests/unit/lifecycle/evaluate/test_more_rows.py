"""Which searches are taken for more rows than the gate's k."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from puffin_ann.blobs.version.gate import Wider
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.declaration import EXACT
from puffin_ann.lifecycle.evaluate.measure import Measure
from puffin_ann.lifecycle.evaluate.more_rows import MOST, choose_wider, depth

CELLS, QUERIES = 8, 60


def index(algorithm: str = "vamana", cells: int = CELLS) -> Any:
    """Cells on a line, two to a shard; queries are at its begin."""
    places = np.arange(cells, dtype=np.float32)[:, None]
    found = Partitions(
        metric="l2", dimension=1, centroids=places, shards=np.arange(cells, dtype=np.uint32) // 2,
        rows=np.full(cells, 50, np.uint64), radii=np.ones(cells, np.float32),
    )  # fmt: skip
    routing = SimpleNamespace(algorithm=algorithm, cells=found, metric="l2")
    version = SimpleNamespace(routing=routing, cells=lambda _: found)
    return SimpleNamespace(version=version, table=SimpleNamespace(io=None))


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
    assert choose_wider(index(), Meter(), (16, 1), target=0.9) == expected


def test_no_search_is_tried_that_is_narrower_than_the_last_or_than_its_rows():
    meter = Meter()
    choose_wider(index(), meter, (48, 1), target=0.9)
    assert meter.asked[0] == (20, 48, 1)
    assert all(width >= k for k, width, _ in meter.asked)
    assert meter.asked == sorted(meter.asked)


def test_where_no_search_finds_enough_those_for_fewer_rows_are_kept():
    assert choose_wider(index(), Meter(enough=100), (16, 8), target=0.9) == (
        Wider(20, 40, 8),
        Wider(40, 80, 8),
    )


def test_more_rows_than_the_table_has_are_not_searched_for():
    assert [one.rows for one in choose_wider(index(), Meter(known=50), (16, 8), target=0.9)] == [
        20,
        40,
    ]


@pytest.mark.parametrize("cells", [CELLS, 0])
def test_nothing_is_chosen_where_nothing_is_for_k(cells):
    few = Meter(queries=np.zeros((10, 1), np.float32))
    assert choose_wider(index(), few, (16, 1), target=0.9) == ()
    assert choose_wider(index(EXACT), Meter(), (16, 1), target=0.9) == ()
    if not cells:
        assert choose_wider(index(cells=0), Meter(), (16, 1), target=0.9) == ()


def test_as_many_neighbours_are_known_as_are_searched_for():
    assert (depth(10), depth(100), depth(1000)) == (80, 200, 1000)
    assert depth(40) == MOST
