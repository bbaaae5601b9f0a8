from types import SimpleNamespace

import numpy as np

from puffin_ann.blobs.shards.cells import CellStarts
from puffin_ann.search.shards.emptied import FARTHER, WIDER, EmptiedCells, probe_farther
from puffin_ann.search.shards.routes import Router


def shard_of(cells, starts, deleted, rows):
    """A shard of which nothing but its cells and its deleted rows is looked at."""
    mask = None
    if deleted is not None:
        mask = np.zeros(rows, np.bool_)
        mask[deleted] = True

    class Rows:
        cells = None

        def __len__(self):
            return rows

    locators = Rows()
    if cells is not None:
        locators.cells = CellStarts(np.array(cells, "<u4"), np.array(starts, "<u4"))
    return SimpleNamespace(loaded=SimpleNamespace(locators=locators), deleted=mask)


def cells_of(shards, rows):
    """Cells of which nothing but shards and rows is looked at."""
    places = {"shards": np.array(shards, np.uint32), "rows": np.array(rows, np.uint64)}
    return SimpleNamespace(count=len(shards), **places)


def test_cells_of_open_shards_are_counted_once_and_by_all_their_runs():
    emptied = EmptiedCells(cells_of([7, 3, 7, 3, 0, 0], [4, 3, 5, 3, 9, 9]))
    # Cell 2 has rows 4 to 7 and, inserted later, row 8.
    first = shard_of([0, 2, 2], [0, 4, 8, 9], [0, 4, 5, 8], 9)
    assert emptied.note({7: first})
    np.testing.assert_allclose(emptied.left, [0.75, 1, 0.4, 1, 1, 1], rtol=1e-6)
    assert not emptied.note({7: first})
    second = shard_of([1, 3, 99], [0, 3, 6, 8], [0, 1, 2, 4], 8)  # 99 is no cell of the index
    assert emptied.note({7: first, 3: second})
    np.testing.assert_allclose(emptied.left, [0.75, 0, 0.4, 2 / 3, 1, 1], rtol=1e-6)


def test_a_shard_built_again_without_rows_that_cells_had_has_emptied_ones():
    had = [100, 90, 100, 2, 0, 800]
    emptied = EmptiedCells(cells_of([1] * 6, had))
    # Cell 1 has none any more; cell 3 had no more than it has; cell 5 had many, and has more than a
    # tenth of what cells have on average, as where its rows were counted each time they changed.
    assert emptied.note({1: shard_of([0, 2, 3, 5], [0, 100, 200, 202, 262], None, 262)})
    np.testing.assert_allclose(emptied.left, [1, 0, 1, 1, 1, 1])


def test_nothing_is_emptied_while_cells_keep_half_of_their_rows():
    emptied = EmptiedCells(cells_of([0, 1, 2, 2, 3], [4, 4, 4, 4, 9]))
    shards = {
        0: shard_of([0], [0, 4], None, 4),
        1: shard_of(None, None, [0, 1, 2, 3], 4),
        2: shard_of([2, 3], [0, 4, 8], [0, 1, 4, 5], 8),
        3: shard_of([4], [0, 4], [0, 1, 2, 3, 4, 5], 9),  # five rows are in no order
    }
    for many in range(1, 5):
        assert not emptied.note({number: shards[number] for number in range(many)})
    assert emptied.left is None


def test_cells_count_by_what_is_left_of_them():
    left = np.array([0, 0.25, 1, 1, 0.5, 1, 1, 1, 1], np.float32)
    scores = np.arange(9, dtype=np.float32)[None]
    probed = probe_farther(scores, left, 1)
    assert FARTHER == 4
    # 0.25 + 1 + 1 + 0.5 + 1 are less than 4 before the seventh; of the first nothing is left.
    assert probed.tolist() == [[False, True, True, True, True, True, True, False, False]]
    assert probe_farther(scores[:, ::-1].copy(), left, 1)[0, 5:].all()
    assert probe_farther(scores, left, 10**9).tolist() == [(left > 0).tolist()]


def test_only_queries_in_emptied_cells_are_routed_farther():
    centroids = np.array([[0, 0], [1, 0], [4, 0], [0, 4], [90, 0]], np.float32)
    router = Router(centroids, np.array([0, 0, 3, 2, 1], np.uint32))
    left = np.array([0.1, 1, 1, 1, 1], np.float32)
    queries = np.array([[0.1, 0.1], [0.9, 0]], np.float32)
    assert router.in_emptied(queries, left).tolist() == [True, False]
    shares = router.shares(queries, 1)
    before = shares.copy()
    router.widen(shares, queries, 1, left)
    assert shares[0].tolist() == [WIDER, WIDER, WIDER, WIDER]  # 0.1 + 1 + 1 + 1 are less than 4
    np.testing.assert_array_equal(shares[1], before[1])
