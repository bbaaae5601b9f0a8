"""Queries from within a cluster whose rows were all deleted find what is left around it."""

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds

ROWS, DIMENSION, CLUSTERS, QUERIES, K = 6000, 48, 12, 40, 10


@pytest.mark.parametrize("algorithm", ["vamana", "hnsw", "ivf_pq"])
def test_shards_all_around_are_searched_where_a_cluster_was_deleted(algorithm, catalog):
    random = np.random.default_rng(3)
    centres = random.normal(size=(CLUSTERS, DIMENSION)) * 2
    cluster = random.integers(0, CLUSTERS, ROWS)
    rows = (centres[cluster] + random.normal(size=(ROWS, DIMENSION))).astype(np.float32)
    queries = (centres[0] + random.normal(size=(QUERIES, DIMENSION))).astype(np.float32)
    content = pa.table({"id": np.arange(ROWS), "embedding": list(rows)})
    table = catalog.create_table("demo.words", schema=content.schema)
    table.append(content)
    builds.build(builds.declaration(algorithm=algorithm, shards=4, gate={}), "run")
    [task] = table.refresh().scan().plan_files()
    delete_positions(table, {task.file.file_path: np.flatnonzero(cluster == 0).tolist()})
    live = np.flatnonzero(cluster != 0)
    distances = ((queries[:, None] - rows[live][None]) ** 2).sum(axis=2)
    near = live[np.argsort(distances, axis=1)[:, :K]]

    def recall(asked):
        ids = index.search(queries[asked], K, columns=["id"])["id"].to_numpy().reshape(-1, K)
        assert (cluster[ids] != 0).all()
        pairs = zip(ids, near[asked], strict=True)
        return np.mean([np.isin(found, true).mean() for found, true in pairs])

    index = open_index(table.refresh(), builds.INDEX)
    # The first search opens shards, and finds only then what was deleted of them.
    assert recall([0]) == recall([0])
    alone = np.mean([recall([number]) for number in range(QUERIES)])
    assert min(alone, recall(list(range(QUERIES)))) >= 0.9
