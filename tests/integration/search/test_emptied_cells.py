"""Queries from within a cluster whose rows were all deleted find what is left around it."""

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.lifecycle.build import gate
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.settings import settings
from tests.support.falsified.damage import forget_cache
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds

ROWS, DIMENSION, CLUSTERS, QUERIES, K = 6000, 96, 12, 40, 10


def with_a_cluster_deleted(catalog, rows_of_all=ROWS, refreshed=False, **declared):
    """An index whose rows of the first of its clusters were deleted, and what measures searches.

    Refreshed, it is searched by ranges: no shard is on local disk, nor brought there.

    Returns the index, and the recall of what it finds for some of the queries, asked together.
    """
    random = np.random.default_rng(3)
    centres = random.normal(size=(CLUSTERS, DIMENSION)) * 2
    cluster = random.integers(0, CLUSTERS, rows_of_all)
    rows = (centres[cluster] + random.normal(size=(rows_of_all, DIMENSION))).astype(np.float32)
    queries = (centres[0] + random.normal(size=(QUERIES, DIMENSION))).astype(np.float32)
    content = pa.table({"id": np.arange(rows_of_all), "embedding": list(rows)})
    table = catalog.create_table("demo.words", schema=content.schema)
    table.append(content)
    declaration = builds.declaration(shards=4, gate={}, **declared)
    builds.build(declaration, "run")
    [task] = table.refresh().scan().plan_files()
    delete_positions(table, {task.file.file_path: np.flatnonzero(cluster == 0).tolist()})
    live = np.flatnonzero(cluster != 0)
    distances = ((queries[:, None] - rows[live][None]) ** 2).sum(axis=2)
    near = live[np.argsort(distances, axis=1)[:, :K]]

    cache = "full"
    if refreshed:
        refresh_in_process(declaration, run_id="refresh", force=True)
        forget_cache()
        cache = "none"
    index = open_index(table.refresh(), builds.INDEX, cache=cache)

    def recall(asked):
        ids = index.search(queries[asked], K, columns=["id"])["id"].to_numpy().reshape(-1, K)
        assert (cluster[ids] != 0).all()
        pairs = zip(ids, near[asked], strict=True)
        return np.mean([np.isin(found, true).mean() for found, true in pairs])

    return index, recall


@pytest.mark.parametrize("algorithm", ["vamana", "hnsw", "ivf_pq"])
def test_shards_all_around_are_searched_where_a_cluster_was_deleted(algorithm, catalog):
    _, recall = with_a_cluster_deleted(catalog, algorithm=algorithm)
    # The first search opens shards, and finds only then what was deleted of them.
    assert recall([0]) == recall([0])
    alone = np.mean([recall([number]) for number in range(QUERIES)])
    assert min(alone, recall(list(range(QUERIES)))) >= 0.9


def test_by_ranges_cells_all_around_are_compared_where_a_cluster_was_deleted(catalog, monkeypatch):
    monkeypatch.setenv("PUFFIN_ANN_RANGES_MIN_BYTES", "0")
    settings.cache_clear()
    monkeypatch.setattr(gate, "choose_scanned_cells", lambda *_, **__: (4, 1.0))
    index, recall = with_a_cluster_deleted(catalog, refreshed=True, algorithm="vamana")
    assert recall(list(range(QUERIES))) >= 0.98
    assert np.mean([recall([number]) for number in range(QUERIES)]) >= 0.98
    assert not index._shards._opened.kept  # no shard was brought


def test_graphs_asked_together_know_of_queries_from_among_their_deleted_rows(catalog):
    """Lists that lead past those rows come to none: nothing else would tell."""
    index, recall = with_a_cluster_deleted(
        catalog, 4 * ROWS, algorithm="vamana", partitions_per_shard=2
    )
    index.warm()
    together = recall(list(range(QUERIES)))
    opened = index._shards._opened.open_all()
    for shard in opened:
        shard.loaded.engine.expect(shard.deleted)
    emptied = max(opened, key=lambda shard: np.count_nonzero(shard.deleted))
    several = index._shards._few._several
    several.where(1)
    for of_deleted in (True, False):
        rows = emptied.loaded.engine.vectors(np.flatnonzero(emptied.deleted == of_deleted)[-3:])
        nearest = emptied.nearest(rows, 1, 1)[1][:, 0]
        assert several.are_in_hollows(METRICS["l2"], rows, nearest, 30) == of_deleted
    assert np.mean([recall([number]) for number in range(QUERIES)]) == pytest.approx(together)
