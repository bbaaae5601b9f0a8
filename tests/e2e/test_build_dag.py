"""Whole builds through the DAG that production loads, compared with brute force."""

import json
import sqlite3

import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.lifecycle.report.status import status
from tests.support.airflow.airflow_stage import QUERIES
from tests.support.params import long_but_first

K = 10
TARGET, LEAST = 0.95, 0.9
"""Recall that is declared, measured with some queries, and that others must find at least."""


def brute_force(metric: str, queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return (q, n) distances in float64; written without the library on purpose."""
    queries, vectors = queries.astype(np.float64), vectors.astype(np.float64)
    if metric == "l2":
        return np.stack([np.sqrt(((vectors - query) ** 2).sum(axis=1)) for query in queries])
    products = queries @ vectors.T
    if metric == "ip":
        return -products
    norms = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(vectors, axis=1)[None, :]
    return 1.0 - products / norms


def declaration(metric: str) -> str:
    return f"""
table: demo.glove.words
column: embedding
key: word
metric: {metric}
algorithm: vamana
parameters: {{R: 32, L: 64}}
shards: 2
partitions_per_shard: 4
recall_target: {TARGET}
spark: {{conf: {{spark.ui.enabled: "false", spark.driver.memory: 1g}}}}
"""


@pytest.mark.parametrize("metric", long_but_first(["ip", "l2", "cosine"]))
def test_an_index_built_by_the_dag_answers_as_brute_force_does(
    stage, words, vectors, queries, metric, request
):
    name = f"words_{metric}"
    stage.declare(name, declaration(metric))
    # One of them runs on a real cluster: executors in processes, and memory, of their own.
    where = {}
    if metric == "ip":
        address = request.getfixturevalue("spark_cluster").removeprefix("spark://")
        host, port = address.split(":")
        where["AIRFLOW_CONN_SPARK_DEFAULT"] = json.dumps(
            {"conn_type": "spark", "host": f"spark://{host}", "port": int(port)}
        )
    stage.run_dag(f"ann_build_{name}", **where)

    table = stage.catalog().load_table("glove.words")
    index = open_index(table, name)
    expected = brute_force(metric, queries, vectors)
    nearest = np.argsort(expected, axis=1, kind="stable")[:, :K]

    exhaustive = index.search(queries, K, columns=["id"], exhaustive=True)
    assert exhaustive.column("query").to_pylist() == np.repeat(np.arange(QUERIES), K).tolist()
    assert exhaustive.column("rank").to_pylist() == list(range(1, K + 1)) * QUERIES
    ids = exhaustive.column("id").to_numpy().reshape(QUERIES, K)
    np.testing.assert_array_equal(ids, nearest)
    _assert_exact(exhaustive, expected)

    found = index.search(queries, K, columns=["id"])
    hits = found.column("id").to_numpy().reshape(QUERIES, K)
    recall = np.mean([len(set(a) & set(b)) / K for a, b in zip(hits, nearest, strict=True)])
    assert recall >= LEAST, f"recall@{K} {recall:.4f}"
    assert all(len(set(row)) == K for row in hits)
    _assert_exact(found, expected)


def _assert_exact(found, expected: np.ndarray) -> None:
    query, row = found.column("query").to_numpy(), found.column("id").to_numpy()
    distances = found.column("distance").to_numpy()
    assert distances.dtype == np.float32
    np.testing.assert_allclose(distances, expected[query, row], rtol=1e-6, atol=1e-7)
    ordered = distances.reshape(QUERIES, K)
    assert (np.diff(ordered, axis=1) >= 0).all()


def test_each_index_has_a_file_and_unusable_rows_are_counted(stage, words):
    declared = sorted(path.stem for path in stage.declarations.glob("words_*.yaml"))
    found = status(stage.catalog().load_table("glove.words"))
    assert [state.index for state in found] == declared
    assert "words_ip" in declared
    assert len({state.file for state in found}) == len(found)
    assert len({state.tag for state in found}) == len(found)
    for state in found:
        assert state.vectors == 4000
        assert state.skipped == {"null": 1, "wrong-length": 1, "not-finite": 2}
        assert state.coverage == 1.0
        assert state.recall >= TARGET
        assert set(state.seconds) == {"train", "assign", "build", "gate"}


def test_the_table_was_read_once_and_no_vector_went_through_xcom(stage, words, vectors):
    index = open_index(stage.catalog().load_table("glove.words"), "words_ip")
    rows = len(vectors) + 4
    read = int(index.version.routing.properties["vector-bytes-read"])
    assert read == rows * vectors.shape[1] * 4
    with sqlite3.connect(stage.folder / "airflow" / "airflow.db") as database:
        sizes = [size for (size,) in database.execute("SELECT LENGTH(value) FROM xcom")]
    assert 0 < max(sizes) < 2000


def test_a_second_run_builds_nothing(stage, words):
    before = stage.catalog().load_table("glove.words").current_snapshot().snapshot_id
    log = stage.run_dag("ann_build_words_ip")
    assert "covers exactly the live rows" in log
    assert stage.catalog().load_table("glove.words").current_snapshot().snapshot_id == before


def test_nothing_staged_is_left_behind(stage, words):
    metadata = stage.folder / "warehouse" / "glove" / "words" / "metadata"
    assert [path for path in metadata.rglob("_ann-staging/*/*/*") if path.is_file()] == []
