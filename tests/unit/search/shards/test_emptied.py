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
    runs = None if cells is None else CellStarts(*(np.array(one, "<u4") for one in (cells, starts)))
    return SimpleNamespace(
        loaded=SimpleNamespace(locators=SimpleNamespace(cells=runs)), deleted=mask
    )


def test_cells_of_open_shards_are_counted_once_and_by_all_their_runs():
    emptied = EmptiedCells(6)
    # Cell 2 has rows 4 to 7 and, inserted later, row 8; row 9 is in no order.
    first = shard_of([0, 2, 2], [0, 4, 8, 9], [0, 4, 5, 8, 9], 10)
    assert emptied.note({7: first})
    np.testing.assert_allclose(emptied.left, [0.75, 1, 0.4, 1, 1, 1], rtol=1e-6)
    assert not emptied.note({7: first})
    second = shard_of([1, 9], [0, 3, 6], [0, 1, 2, 4], 6)  # 9 is no cell of the index
    assert emptied.note({7: first, 3: second})
    np.testing.assert_allclose(emptied.left, [0.75, 0, 0.4, 1, 1, 1], rtol=1e-6)


def test_nothing_is_emptied_while_cells_keep_half_of_their_rows():
    emptied = EmptiedCells(3)
    whole, unknown = shard_of([0], [0, 4], None, 4), shard_of(None, None, [0, 1, 2, 3], 4)
    half = shard_of([1, 2], [0, 4, 8], [0, 1, 4, 5], 8)
    assert not emptied.note({0: whole, 1: unknown})
    assert not emptied.note({0: whole, 1: unknown, 2: half})
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
