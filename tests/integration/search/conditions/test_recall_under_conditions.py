"""Rows are found as well under conditions as the gate asked for, whatever these have to do with it.

Those that may be answered lie anywhere, near the queries, or far from them, where the nearest that
a search meets first may not be answered.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from puffin_ann import open_index
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.signs import row_codes, sign_rows
from puffin_ann.ann.signs.kernels_blocks import code_rows
from puffin_ann.ann.signs.sign_rows import SignRows
from puffin_ann.search.conditions import ways
from puffin_ann.search.conditions.ways import Cost, Growing, Way
from puffin_ann.search.explain.explanation import explanation_of
from puffin_ann.search.shards.costs import Costs
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds
from tests.support.paths import SAMPLE

ROWS, QUERIES, K, TARGET = 4_000, 100, 10, 0.9

DEAR = 1000.0
"""How many times as much it costs to compare rows, as if there were as many times more of them."""


@pytest.fixture
def built(catalog):
    """Build an index; returns it, its vectors, queries of one region, and how far rows are of it.

    The rows have their place in that order, and another drawn, in columns.
    """
    words = pq.read_table(SAMPLE, columns=["embedding"])
    every = np.stack(words["embedding"].to_numpy(zero_copy_only=False)).astype(np.float32)
    vectors, others = every[:ROWS], every[ROWS:]
    region = others[0]
    queries = others[np.argsort(((others - region) ** 2).sum(axis=1))[:QUERIES]]
    rank = np.argsort(np.argsort(((vectors - region) ** 2).sum(axis=1)))
    draw = np.random.default_rng(3).permutation(ROWS)
    rows = words.slice(0, ROWS)
    rows = rows.append_column("rank", pa.array(rank)).append_column("draw", pa.array(draw))
    table = catalog.create_table("demo.words", schema=rows.schema)
    table.append(rows)

    def build(algorithm):
        declared = builds.declaration(
            algorithm=algorithm, shards=2, partitions_per_shard=8, gate={}, recall_target=TARGET
        )
        builds.build(declared, "run")
        index = open_index(table.refresh(), builds.INDEX)
        return index, vectors, queries, {"rank": rank, "draw": draw}

    return build


def recall(answers, queries, vectors):
    found = answers["distance"].to_numpy().reshape(len(queries), K)
    _, nearest = brute_force.search(queries, vectors, K, "l2")
    return float((found <= nearest[:, -1:] * np.float32(1 + 1e-5)).mean())


@pytest.mark.parametrize("algorithm", ["vamana", "hnsw", "ivf_pq"])
def test_the_target_is_reached_by_every_way_whatever_a_condition_has_to_do_with_the_vectors(
    built, algorithm, monkeypatch
):
    index, vectors, queries, places = built(algorithm)
    conditions = {
        f"{column} {sign} {most}": sign == "<"
        for column, sign in (("draw", "<"), ("rank", "<"), ("rank", ">="))
        for most in (ROWS // 10, ROWS // 2, ROWS * 9 // 10)
    }
    used = set()
    for where, is_below in conditions.items():
        column, _, most = where.split()
        allowed = (places[column] < int(most)) == is_below
        for way, cost in [(None, 1.0), (None, DEAR), (Way.MASK, 1.0), (Way.SIFT, 1.0)]:
            with monkeypatch.context() as patch:
                dear(patch, cost)
                index._shards.way = way
                answers = index.search(queries, K, where=where)
                assert recall(answers, queries, vectors[allowed]) >= TARGET, (where, way, cost)
                told = explanation_of(index.search(queries, K, where=where, explain=True))
                used |= {
                    shard.way.split()[0] for shard in told.shards if (way, cost) == (None, DEAR)
                }
    # By the default choice: rows that are compared are gathered, or lie where they are.
    assert {"masked", "sifted"} < used <= {"masked", "sifted", "gathered", "allowed"}


def test_one_query_a_call_is_compared_by_signs_and_no_dead_row_comes_back(built, monkeypatch):
    """As of a table so large that many rows may be answered: its rows are gathered by signs."""
    monkeypatch.setattr(sign_rows, "LEAST_NUMBERS", 1)
    monkeypatch.setattr(Costs, "gathering_pays", lambda *_: True)
    index, vectors, queries, places = built("vamana")
    signed, nearest = [], SignRows.nearest
    monkeypatch.setattr(
        SignRows, "nearest", lambda *args, **more: signed.append(1) or nearest(*args, **more)
    )
    draw, deleted = places["draw"], places["rank"] < 40

    def assert_found(index, where, allowed):
        index._shards.way = Way.COMPARE
        answers = [index.search(query, K, where=where, columns=["draw"]) for query in queries]
        answered = pa.concat_tables(answers)
        rows = np.argsort(draw)[answered["draw"].to_numpy()]
        assert allowed[rows].all()
        exact = METRICS["l2"].pair_distances(queries, vectors, rows.reshape(-1, K))
        np.testing.assert_array_equal(answered["distance"].to_numpy(), exact.reshape(-1))
        assert recall(answered, queries, vectors[allowed]) >= 0.98

    assert_found(index, "draw < 3000", draw < 3000)
    assert len(signed) == QUERIES
    codes, coded = index._shards._opened.row_codes, []
    assert codes.share == pytest.approx(3000 / ROWS)
    monkeypatch.setattr(
        row_codes, "code_rows", lambda *args: coded.append(len(args[1])) or code_rows(*args)
    )
    assert_found(index, "draw < 2800", draw < 2800)
    assert coded == []  # they were, for the first condition
    assert_found(index, "draw < 4000", draw < 4000)
    assert sum(coded) == 1000
    table = index.table
    (task,) = table.scan().plan_files()
    delete_positions(table, {task.file.file_path: np.flatnonzero(deleted).tolist()})
    assert_found(open_index(table.refresh(), builds.INDEX), "draw < 3000", (draw < 3000) & ~deleted)
    assert_found(index, "draw < 3000", draw < 3000)  # of the snapshot before
    assert len(signed) == 5 * QUERIES


def dear(patch, times):
    """Have it cost so many times as much to compare rows."""

    def more(cost):
        return Cost(cost.batch * times, cost.single * times)

    by_bytes = ways.COMPARED_BY_BYTES
    patch.setattr(ways, "COMPARED", more(ways.COMPARED))
    patch.setattr(ways, "COMPARED_BY_BYTES", Growing(more(by_bytes.narrow), more(by_bytes.wide)))
