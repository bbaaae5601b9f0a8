"""The width that searches use is found by the build, on rows that the gate does not ask for."""

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from puffin_ann.lifecycle.build import gate
from puffin_ann.lifecycle.evaluate import measure, tune
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(5).normal(size=(50, builds.DIMENSION)).astype(np.float32)


@pytest.fixture
def many_words(words):
    """Rows no two of which are equal."""
    different = builds.rows([number for number in range(60, 3500) if number % 7])
    words.overwrite(different)
    return words.refresh()


def declared(**changes):
    return builds.declaration(
        algorithm="vamana",
        parameters={"R": 8, "L": 16, "alpha": 1.0, "pq_m": 4, "pq_nbits": 4},
        gate={"queries": 200, "k": 10},
        **changes,
    )


def asked_for(monkeypatch):
    """Record the queries of every measurement, and which of them chose the width."""
    measured, tuned = [], []
    honest, choose = measure.RecallMeter.measure, tune.choose_widths

    def measuring(meter, *arguments, **options):
        measured.append(meter.queries)
        return honest(meter, *arguments, **options)

    def chosen(index, meter, **options):
        tuned.append(meter.queries)
        return choose(index, meter, **options)

    monkeypatch.setattr(measure.RecallMeter, "measure", measuring)
    monkeypatch.setattr(gate, "choose_widths", chosen)
    return measured, tuned


def test_the_width_is_found_on_rows_that_are_not_the_gates_and_recorded(many_words, monkeypatch):
    measured, tuned = asked_for(monkeypatch)
    builds.build(declared(recall_target=0.95), "run")
    tuning = tuned[0]
    assert sum(tried is tuning for tried in measured) > 1, "several widths were tried"
    (judged,) = (tried for tried in measured if tried is not tuning)
    assert len(tuning) >= 150
    assert len(judged) >= 150
    both = np.concatenate([np.unique(tuning, axis=0), np.unique(judged, axis=0)])
    assert len(np.unique(both, axis=0)) == len(both), "no row is asked for by both"
    routing = open_index(many_words.refresh(), builds.INDEX).version.routing
    assert routing.search_width in tune.WIDTHS
    assert 1 <= routing.probe_partitions <= routing.cells.count
    assert (routing.recall.k, routing.recall.queries) == (10, len(judged))
    assert routing.recall.low <= routing.recall.recall <= routing.recall.high
    assert routing.recall.recall >= routing.recall.target == 0.95
    assert [wider.rows for wider in routing.wider] == [20, 40, 80], "more rows were asked for, too"


def test_searches_use_what_was_recorded_by_default(many_words):
    builds.build(declared(recall_target=0.95), "run")
    index = open_index(many_words.refresh(), builds.INDEX)
    routing = index.version.routing
    found = index.search(QUERIES, 5, columns=["id"])
    told = index.search(
        QUERIES,
        5,
        columns=["id"],
        width=routing.search_width,
        probe_partitions=routing.probe_partitions,
    )
    assert found.equals(told)
    narrow = index.search(QUERIES, 5, columns=["id"], width=1, probe_partitions=1)
    assert not found.equals(narrow)


def test_a_higher_target_is_searched_wider(many_words):
    reached = []
    for target in (0.6, 0.99):
        plan = builds.build(declared(recall_target=target), f"run-{target}")
        assert plan.action == "build", "a target above what was measured is built for"
        index = open_index(many_words.refresh(), builds.INDEX)
        routing = index.version.routing
        nearest = index.search(QUERIES, 10, exhaustive=True).column("distance").to_numpy()
        found = index.search(QUERIES, 10).column("distance").to_numpy()
        least = nearest.reshape(len(QUERIES), 10)[:, -1:]
        reached.append(
            (
                routing.search_width * routing.probe_partitions,
                float((found.reshape(len(QUERIES), 10) <= least).mean()),
            )
        )
    (little, low), (much, high) = reached
    assert little < much
    assert low < high
    assert high >= 0.95


def test_by_inner_product_rows_are_found_by_themselves_as_well(catalog):
    """A row lies elsewhere than a query that equals it: cells near the query need not lead to it.

    The gate left it out, as where it is at no distance, and a fifth of rows were not found.
    """
    numbers = np.random.default_rng(0).random((4000, 64)).astype(np.float32)
    rows = pa.table({"id": np.arange(4000), "embedding": list(numbers)})
    catalog.create_table("demo.uniform", schema=rows.schema).append(rows)
    wide = builds.declaration(
        table="test.demo.uniform", metric="ip", algorithm="vamana", partitions_per_shard=32,
        gate={"queries": 200, "k": 10}, recall_target=0.95,
    )  # fmt: skip
    builds.build(wide, "run")
    asked = numbers[np.random.default_rng(1).choice(4000, 500, replace=False)]
    index = open_index("test.demo.uniform", builds.INDEX)
    exact, found = (
        index.search(asked, 1, exhaustive=exhaustive, columns=["id"]).column("id").to_numpy()
        for exhaustive in (True, False)
    )
    assert (exact == found).mean() >= 0.94
