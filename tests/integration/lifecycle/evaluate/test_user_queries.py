"""What is found for queries that are no rows of the table, and what it takes to find more."""

import json

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from puffin_ann.cli.main import run
from puffin_ann.errors import QueryError, RecallTooLowError, TooFewRowsError
from puffin_ann.lifecycle.evaluate.user_queries import Tried, describe_searches, try_searches
from tests.support.lifecycle import builds

K, TARGET = 10, 0.9


def near_duplicates() -> np.ndarray:
    """About 80 centres 40 rows each that nearly equal them."""
    generator = np.random.default_rng(1)
    centres = generator.normal(size=(80, builds.DIMENSION))
    rows = np.repeat(centres, 40, axis=0)
    return (rows + generator.normal(scale=0.01, size=rows.shape)).astype(np.float32)


@pytest.fixture
def declaration(catalog):
    rows = near_duplicates()
    lists = pa.array(rows.tolist(), pa.list_(pa.float32()))
    data = pa.table({"id": pa.array(range(len(rows)), pa.int64()), "embedding": lists})
    catalog.create_table("demo.words", schema=data.schema).append(data)
    declared = builds.declaration(
        algorithm="vamana",
        parameters={"R": 8, "L": 16, "pq_m": 4, "pq_nbits": 4},
        recall_target=TARGET,
        gate={"queries": 100, "k": K},
    )
    builds.build(declared, "build")
    return declared


def own() -> np.ndarray:
    """Vectors amid the centres, near to none."""
    return np.random.default_rng(2).normal(size=(100, builds.DIMENSION)).astype(np.float32)


def recall(index, queries: np.ndarray, **options) -> float:
    """Recall by brute force over what was written, without the library."""
    rows = near_duplicates()
    found = index.search(queries, K, columns=["id"], **options)
    ids = found.column("id").to_numpy().reshape(len(queries), K)
    exact = np.array([builds.distances("l2", query, rows) for query in queries])
    last = np.sort(exact, axis=1)[:, K - 1 : K]
    return float((np.take_along_axis(exact, ids, axis=1) <= last * (1 + 1e-6)).mean())


def test_searches_are_widened_until_they_find_enough(declaration):
    index, queries = open_index(declaration.table, builds.INDEX), own()
    tried = try_searches(index, queries, K, target=TARGET)
    routing = index.version.routing
    assert (tried[0].width, tried[0].probe_partitions) == (
        routing.search_width,
        routing.probe_partitions,
    )
    assert tried[0].measure.recall < TARGET < routing.recall.recall
    assert tried[-1].measure.recall >= TARGET > tried[-2].measure.recall
    for attempt in tried:
        options = {"width": attempt.width, "probe_partitions": attempt.probe_partitions}
        assert attempt.measure.recall == pytest.approx(recall(index, queries, **options), abs=1e-9)
    with pytest.raises(RecallTooLowError, match=rf"--width {tried[-1].width} .*search so"):
        describe_searches(index, K, TARGET, tried)


def test_what_is_enough_is_said_and_no_wider_search_is_tried(declaration):
    index = open_index(declaration.table, builds.INDEX)
    tried = try_searches(index, near_duplicates()[::40], K, target=TARGET)
    assert len(tried) == 1
    assert "for the 80 queries given; the target is 0.9" in describe_searches(
        index, K, TARGET, tried
    )


def test_where_no_search_finds_enough_the_widest_is_told(declaration):
    index = open_index(declaration.table, builds.INDEX)
    tried = try_searches(index, own(), K, target=1.1)
    assert [attempt.width for attempt in tried] == [
        tried[0].width * 2**step for step in range(len(tried))
    ]
    assert tried[-1].measure.recall >= tried[0].measure.recall
    low = [Tried(attempt.width, attempt.probe_partitions, attempt.measure) for attempt in tried[:1]]
    with pytest.raises(RecallTooLowError, match="no wider one was tried"):
        describe_searches(index, K, TARGET, low)


def test_exact_finds_all_and_no_row_is_an_error(words):
    declared = builds.declaration()
    builds.build(declared, "build")
    (only,) = try_searches(open_index(declared.table, builds.INDEX), own(), K, target=1.0)
    assert only.measure.recall == 1.0
    words.refresh().delete("id >= 0")
    with pytest.raises(TooFewRowsError, match="no row is live"):
        try_searches(open_index(declared.table, builds.INDEX), own(), K, target=1.0)


def test_queries_of_another_width_are_refused(declaration):
    index = open_index(declaration.table, builds.INDEX)
    with pytest.raises(QueryError, match="shape"):
        try_searches(index, np.zeros((2, 3), np.float32), K, target=TARGET)


def test_the_command_tells_it_and_leaves_with_5(declaration, tmp_path, monkeypatch, capsys):
    file = tmp_path / "words_index.yaml"
    file.write_text(declaration.model_dump_json())
    np.save(tmp_path / "own.npy", own())

    def call(*options: str) -> tuple[int | str | None, str, str]:
        vector = ("--vector", str(tmp_path / "own.npy"))
        monkeypatch.setattr("sys.argv", ["puffin-ann", "evaluate", str(file), *vector, *options])
        with pytest.raises(SystemExit) as left:
            run()
        return left.value.code, *capsys.readouterr()

    code, out, _ = call("--json")
    told = json.loads(out)
    assert (code, told["k"], told["target"]) == (5, K, TARGET)
    widest = told["searches"][-1]
    assert widest["measure"]["recall"] >= TARGET
    code, out, errors = call()
    assert code == 5
    assert f"{widest['measure']['recall']:.4f}" in out
    assert f"--width {widest['width']} " in errors
    assert call("--queries", "10")[0] == 2
