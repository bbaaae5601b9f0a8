"""Rows beyond those that the gate asked for are found as well as these, also under conditions."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from puffin_ann import open_index
from puffin_ann.ann.exact import brute_force
from puffin_ann.search.conditions.ways import Way
from tests.support.lifecycle import builds
from tests.support.paths import SAMPLE

ROWS, QUERIES, TARGET = 12_000, 200, 0.95


@pytest.fixture
def index_and_words(catalog):
    words = pq.read_table(SAMPLE, columns=["embedding"])
    vectors = np.stack(words["embedding"].to_numpy(zero_copy_only=False)).astype(np.float32)
    draw = np.random.default_rng(3).permutation(ROWS)
    rows = words.slice(0, ROWS).append_column("draw", pa.array(draw))
    table = catalog.create_table("demo.words", schema=rows.schema)
    table.append(rows)
    declared = builds.declaration(
        algorithm="vamana", shards=6, partitions_per_shard=16, gate={}, recall_target=TARGET
    )
    builds.build(declared, "run")
    queries = vectors[ROWS : ROWS + QUERIES]
    return open_index(table.refresh(), builds.INDEX), vectors[:ROWS], draw, queries


def recall(answers, queries, vectors, k):
    found = answers["distance"].to_numpy().reshape(len(queries), k)
    _, nearest = brute_force.search(queries, vectors, k, "l2")
    return float((found <= nearest[:, -1:] * np.float32(1 + 1e-5)).mean())


def test_by_defaults_the_target_is_reached_for_more_neighbours_and_under_conditions(
    index_and_words,
):
    index, vectors, draw, queries = index_and_words
    for k in (10, 40, 160):
        assert recall(index.search(queries, k), queries, vectors, k) >= TARGET, k
    index._shards.way = Way.SIFT
    for share in (0.5, 0.1):
        most = round(ROWS * share)
        answers = index.search(queries, 10, where=f"draw < {most}")
        assert recall(answers, queries, vectors[draw < most], 10) >= TARGET, share
