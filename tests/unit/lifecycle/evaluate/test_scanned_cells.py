"""How many cells a search by ranges compares: as few as the true neighbours of queries lie in."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.lifecycle.evaluate.ground_truth import Truth
from puffin_ann.lifecycle.evaluate.measure import RecallMeter
from puffin_ann.lifecycle.evaluate.scanned_cells import choose_scanned_cells

CELLS = 20
CENTROIDS = np.arange(CELLS, dtype=np.float32)[:, None]


def index(algorithm="vamana"):
    """Cells on a line, one at each whole number."""
    cells = SimpleNamespace(centroids=CENTROIDS, count=CELLS)
    routing = SimpleNamespace(metric="l2", algorithm=algorithm, cells=cells)
    version = SimpleNamespace(routing=routing, cells=lambda _: cells)
    return SimpleNamespace(version=version, table=SimpleNamespace(io=None))


def meter(near) -> RecallMeter:
    """Queries at -1, of which the neighbours lie in given cells: the cell's number is its rank."""
    cells = np.array(near, np.int32)
    nothing = np.zeros((0, 4), np.int64)
    distances = np.where(cells < 0, np.inf, 1.0).astype(np.float32)
    truth = Truth(distances, nothing, np.zeros(len(cells), np.int64), cells)
    return RecallMeter(np.full((len(cells), 1), -1.0, np.float32), truth, cells.shape[1])


def test_the_fewest_cells_that_have_the_neighbours_are_taken():
    near = meter([[0, 1, 2, 3]] * 60)
    assert choose_scanned_cells(index(), near, near, target=0.95) == (4, 1.0)
    assert choose_scanned_cells(index(), near, near, target=0.7) == (4, 1.0)
    assert choose_scanned_cells(index(), near, near, target=0.6) == (3, 0.75)


def test_queries_that_did_not_choose_have_the_last_word():
    chosen, found = choose_scanned_cells(
        index(), meter([[0, 1]] * 60), meter([[0, 9]] * 60), target=0.95
    )
    assert (chosen, found) == (10, 1.0)


def test_neighbours_that_there_are_not_count_neither_way():
    near = meter([[0, -1]] * 60)
    assert choose_scanned_cells(index(), near, near, target=0.95) == (1, 1.0)


@pytest.mark.parametrize(("algorithm", "queries"), [("exact", 60), ("vamana", 49)])
def test_every_cell_is_taken_where_nothing_may_be_missed_or_little_is_known(algorithm, queries):
    near = meter([[0, 1]] * queries)
    assert choose_scanned_cells(index(algorithm), near, near, target=0.95) == (CELLS, 1.0)


@given(
    st.lists(st.lists(st.integers(0, CELLS - 1), min_size=3, max_size=3), min_size=50, max_size=60),
    st.sampled_from([0.5, 0.9, 0.95, 1.0]),
)
def test_what_is_chosen_reaches_the_target(near, target):
    chosen, found = choose_scanned_cells(index(), meter(near), meter(near), target=target)
    counted = np.mean([[cell < chosen for cell in row] for row in near])
    assert found == pytest.approx(counted)
    assert found >= target - 1e-9
