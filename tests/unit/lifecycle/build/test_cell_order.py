"""Rows of a shard are put in the order of its cells, and nothing about them changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.lifecycle.build import cell_order
from puffin_ann.lifecycle.build.cell_order import ShardCells, in_cell_order
from puffin_ann.lifecycle.ingest.segments import VectorRows

D = 3


def rows_of(count, seed=0):
    rng = np.random.default_rng(seed)
    locators = np.stack([np.zeros(count), np.arange(count) // 7, np.arange(count) % 7], axis=1)
    return VectorRows(
        rng.standard_normal((count, D)).astype(np.float32),
        locators.astype(np.uint32),
        rng.integers(0, 2**63, (count, 2)).astype(np.uint64),
    )


def cells_of(metric="l2", cells=6, shards=2, seed=1):
    rng = np.random.default_rng(seed)
    width = D + (metric == "ip")
    owners = (np.arange(cells) % shards).astype(np.uint32)
    centroids = rng.standard_normal((cells, width)).astype(np.float32)
    return ShardCells.of(1, centroids, owners, metric, 3.0)


@pytest.mark.parametrize("chunk", [3, 1 << 15])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(count=st.integers(0, 60), metric=st.sampled_from(["l2", "cosine", "ip"]))
def test_all_rows_are_there_by_cell_and_then_by_locator(tmp_path_factory, chunk, count, metric):
    given_rows, cells = rows_of(count), cells_of(metric)
    folder = tmp_path_factory.mktemp("ordered")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell_order, "CHUNK_ROWS", chunk)
        rows, located = in_cell_order(given_rows, cells, folder, threads=1)

    space = METRICS[metric].to_search_space(given_rows.vectors, 3.0)
    squared = ((space[:, None] - cells.centroids[None]) ** 2).sum(axis=2)
    expected = cells.ids[squared.argmin(axis=1)] if count else np.zeros(0, np.uint32)
    order = np.argsort(expected, kind="stable")
    np.testing.assert_array_equal(rows.vectors, given_rows.vectors[order])
    np.testing.assert_array_equal(rows.locators, given_rows.locators[order])
    np.testing.assert_array_equal(rows.identities, given_rows.identities[order])
    np.testing.assert_array_equal(located.offsets, given_rows.locators[order, 2])
    if count:
        assert located.cells is not None
        for cell, start, stop in located.cells.ranges():
            assert (expected[order[start:stop]] == cell).all()
        assert located.cells.ordered_rows == count


def test_rows_of_one_cell_are_left_where_they_are(tmp_path):
    rows = rows_of(20)
    same, located = in_cell_order(rows, cells_of(cells=2), tmp_path, threads=1)
    assert same is rows
    assert list(located.cells.ranges()) == [(1, 0, 20)]
    assert not list(tmp_path.iterdir())


def test_rows_of_a_shard_without_cells_are_left_where_they_are(tmp_path):
    rows = rows_of(20)
    same, located = in_cell_order(rows, cells_of(cells=0), tmp_path, threads=1)
    assert same is rows
    assert located.cells is None
