"""Rows of a shard lie in the order of its cells: as built, after a remap, a merge and a rebuild."""

from pathlib import Path

import numpy as np
import pytest

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.engines import engine
from puffin_ann.search.version.versions import open_puffin
from tests.support.lifecycle import builds
from tests.support.lifecycle.refreshes import (
    compact,
    declared,
    delete_merge_on_read,
    maintained,
    newest,
    refresh,
)


def shards_of(table, folder: Path):
    """The rows and the vectors of every shard of the newest version, by its number."""
    version, found = newest(table), {}
    made_by = engine(version.routing.algorithm)
    for shard in version.routing.shards:
        if shard.kind != "graph":
            continue
        of_it = {"index": builds.INDEX, "shard": str(shard.shard_id)}
        unpacked = folder / f"{version.run_id}-{shard.shard_id}"
        unpacked.mkdir()
        with open_puffin(table.io, version.file_of(shard)) as reader:
            rows = rows_blob.read(reader.open(reader.only(rows_blob.TYPE, **of_it)))
            made_by.unpack(reader.open(reader.only(made_by.blob_type, **of_it)), unpacked)
        opened = made_by.open(unpacked)
        found[shard.shard_id] = rows, opened.vectors(np.arange(opened.rows))
    return found


def assert_in_cell_order(table, folder, *, several_runs=False):
    """Hold each range to the cells that its rows are nearest to, and to the order in it."""
    version, behind = newest(table), False
    routing, every = version.routing, version.cells(table.io)
    for number, (rows, vectors) in shards_of(table, folder).items():
        space = METRICS[routing.metric].to_search_space(vectors, routing.norm_bound)
        squared = ((space[:, None] - every.centroids[None]) ** 2).sum(axis=2)
        assert rows.cells is not None
        assert set(rows.cells.cells.tolist()) <= set(
            np.flatnonzero(every.shards == number).tolist()
        )
        for cell, start, stop in rows.cells.ranges():
            assert (squared[start:stop].argmin(axis=1) == cell).all()
            if not several_runs and not rows.in_order:
                part = rows.take(np.arange(start, stop))
                assert part.in_order
        assert rows.cells.ordered_rows == len(rows)
        behind |= bool((np.diff(rows.cells.cells.astype(np.int64)) <= 0).any())
    assert behind == several_runs


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("algorithm", ["vamana", "hnsw", "ivf_pq", "exact"])
def test_a_build_puts_rows_in_the_order_of_cells(words, tmp_path, algorithm, metric):
    builds.build(declared(algorithm, metric=metric), "build")
    words.refresh()
    assert_in_cell_order(words, tmp_path)


@pytest.mark.parametrize("algorithm", ["vamana", "exact"])
def test_inserted_rows_are_further_runs_and_a_rebuild_makes_one_of_each_cell(
    words, tmp_path, algorithm
):
    eager = declared(algorithm, refresh={"delta_ratio": 0.0})
    builds.build(eager, "build")
    words.refresh()
    words.append(builds.rows(range(60, 72)))
    refresh(words, eager, "append", maintenance=True)
    if any(shard.kind == "delta" for shard in newest(words).routing.shards):
        refresh(words, eager, "merge", maintenance=True)
    assert_in_cell_order(words, tmp_path, several_runs=True)

    delete_merge_on_read(words, 15)
    refresh(words, eager, "delete")
    done = maintained(words, eager, "rebuild")
    assert "rebuild shard" in done["reason"]
    assert_in_cell_order(words, tmp_path)


def test_a_remap_keeps_the_cells(words, tmp_path):
    declaration = declared("vamana")
    builds.build(declaration, "build")
    words.refresh()
    before = {number: rows.cells for number, (rows, _) in shards_of(words, tmp_path).items()}
    compact(words)
    refresh(words, declaration, "remap")
    after = shards_of(words, tmp_path)
    for number, cells in before.items():
        assert after[number][0].cells.starts.tolist() == cells.starts.tolist()
        assert after[number][0].cells.cells.tolist() == cells.cells.tolist()
