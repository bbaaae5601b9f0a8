"""Builds in this process, over small tables in an embedded catalog, and their oracle."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration, parse_declaration
from puffin_ann.lifecycle.build import stages
from puffin_ann.lifecycle.documents.run import PlanPointer
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runs import build as run
from puffin_ann.lifecycle.runs import publish
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.search.index import Index

DIMENSION = 8
INDEX = "words_index"


PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "vamana": {"R": 8, "L": 16, "pq_m": 4, "pq_nbits": 4},
    "hnsw": {"M": 4, "ef_construction": 16},
}
"""Parameters of graphs for some dozens of rows."""


DEFAULTS: dict[str, Any] = {}
"""What every declaration made here says unless it is told otherwise; set by fixtures."""


def declaration(**changes: Any) -> IndexDeclaration:
    """A small index over `test.demo.words`."""
    shards = {"shards": 2, "partitions_per_shard": 2}
    data = {
        "name": INDEX,
        "table": "test.demo.words",
        "column": "embedding",
        "metric": "l2",
        "algorithm": "exact",
        **({} if changes.get("algorithm") == "centroid" else shards),
        "gate": {"queries": 10, "k": 5},
        **DEFAULTS,
        **changes,
    }
    return parse_declaration(data, source="test")


def build(declared: IndexDeclaration, run_id: str, overrides: Mapping[str, Any] | None = None):
    """Run a whole build in this process; returns the plan's pointer."""
    plan = run.plan_build(declared, run_id=run_id, overrides=overrides)
    if plan.action == "build":
        run_stages(plan)
        publish.publish(RunRef.planned(plan))
    publish.report(plan)
    return plan


def run_stages(plan: PlanPointer) -> None:
    """Run the stages between planning and publishing."""
    runner, this_run = InProcess(), RunRef.planned(plan)
    stages.train(runner, this_run)
    stages.assign(runner, this_run)
    for group in plan.groups:
        stages.build_group(runner, this_run, group)
    stages.gate(runner, this_run)


def rows(ids, seed: int = 0) -> pa.Table:
    """Rows with the given ids; a vector depends on its id and the seed alone.

    One id in seven has the vector of the id before it: equal distances must be ordered, too.
    """
    ids = np.asarray(ids, dtype=np.int64)
    vectors = np.zeros((len(ids), DIMENSION), dtype=np.float32)
    for place, number in enumerate(ids):
        source = number - 1 if number and number % 7 == 0 else number
        vectors[place] = np.random.default_rng([seed, int(source)]).normal(size=DIMENSION)
    return pa.table(
        {
            "id": pa.array(ids),
            "word": pa.array([f"w{number}" for number in ids], pa.string()),
            "embedding": pa.FixedSizeListArray.from_arrays(
                pa.array(vectors.ravel()), DIMENSION
            ).cast(pa.list_(pa.float32())),
        }
    )


def snapshot_ids(table: Table) -> list[int]:
    """The snapshots that a table has now, the oldest first."""
    table.refresh()
    return [snapshot.snapshot_id for snapshot in table.snapshots()]


def live(table: Table, snapshot_id: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """What PyIceberg itself reads of a snapshot: ids and vectors of rows with a usable vector."""
    data = table.scan(snapshot_id=snapshot_id).to_arrow()
    usable = [
        (number, vector)
        for number, vector in zip(
            data.column("id").to_pylist(), data.column("embedding").to_pylist(), strict=True
        )
        if vector is not None and len(vector) == DIMENSION and np.linalg.norm(vector) <= 2.0**62
    ]
    ids = np.array([number for number, _ in usable], dtype=np.int64)
    vectors = np.array([vector for _, vector in usable], dtype=np.float32)
    return ids, vectors.reshape(-1, DIMENSION)


def distances(metric: str, query: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Distances in float64, without the library."""
    query, vectors = query.astype(np.float64), vectors.astype(np.float64)
    if metric == "l2":
        return np.sqrt(((vectors - query) ** 2).sum(axis=1))
    products = vectors @ query
    if metric == "ip":
        return -products
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    return 1.0 - np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)


def assert_answers(
    index: Index,
    table: Table,
    snapshot_id: int,
    queries: np.ndarray,
    k: int,
    precision: type = np.float64,
) -> None:
    """Hold an index to what PyIceberg reads of a snapshot."""
    assert_answers_are(index, live(table, snapshot_id), queries, k, precision)


def assert_answers_are(
    index: Index,
    rows: tuple[np.ndarray, np.ndarray],
    queries: np.ndarray,
    k: int,
    precision: type = np.float64,
    where: Any = None,
    ways: tuple[bool, ...] = (False, True),
) -> None:
    """Hold exhaustive search to brute force, and approximate search to its promises.

    In float32, rows whose distances round to the same number may come in either order. Where there
    is a condition, the rows are those that satisfy it. `ways` says which of the two are tried.
    """
    ids, vectors = rows
    expected = min(k, len(ids))
    for exhaustive in ways:  # the exhaustive one brings every shard to local disk
        found = index.search(
            queries, k, columns=["id"], exhaustive=exhaustive, allow_fewer=True, where=where
        )
        for number, query in enumerate(queries):
            here = found.filter(pa.compute.equal(found.column("query"), number))
            answered = here.column("id").to_numpy()
            exact = distances(index.metric, query, vectors)
            place = {key: at for at, key in enumerate(ids.tolist())}
            assert len(answered) == expected
            assert len(set(answered.tolist())) == expected, "a row was answered twice"
            assert set(answered.tolist()) <= set(place), "a deleted row was answered"
            mine = exact[[place[key] for key in answered.tolist()]]
            np.testing.assert_allclose(
                here.column("distance").to_numpy(), mine, rtol=1e-6, atol=1e-6
            )
            if exhaustive:
                best = np.sort(exact.astype(precision))[:expected]
                rtol = 1e-12 if precision is np.float64 else 2e-7
                np.testing.assert_allclose(mine.astype(precision), best, rtol=rtol)


def assert_within(
    index: Index,
    rows: tuple[np.ndarray, np.ndarray],
    queries: np.ndarray,
    shares: tuple[float, ...] = (0.0, 0.1, 0.5, 1.0),
) -> None:
    """Hold threshold queries to brute force, at distances that some shares of the rows have."""
    ids, vectors = rows
    every = np.array([distances(index.metric, query, vectors) for query in queries])
    for threshold in [*np.quantile(every, shares).tolist(), 2 * float(abs(every).max()) + 1]:
        slack = 1e-6 * max(1.0, abs(threshold))
        found = index.within(queries, threshold, columns=["id"])
        for number, exact in enumerate(every):
            here = found.filter(pa.compute.equal(found.column("query"), number))
            answered = here.column("id").to_pylist()
            assert len(set(answered)) == len(answered), "a row was answered twice"
            assert set(ids[exact < threshold - slack].tolist()) <= set(answered)
            assert set(answered) <= set(ids[exact < threshold + slack].tolist())
            found_distances = here.column("distance").to_pylist()
            assert found_distances == sorted(found_distances)
            assert here.column("rank").to_pylist() == list(range(1, len(answered) + 1))
