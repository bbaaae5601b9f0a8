"""What a search tells of how it was answered, held to what it did."""

import json
import time

import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.errors import QueryError
from puffin_ann.search import brute_force
from puffin_ann.search.conditions import kept
from puffin_ann.search.conditions.ways import Way as AnswerWay
from puffin_ann.search.explain.explanation import explanation_of
from puffin_ann.search.explain.recorder import current
from puffin_ann.search.explain.tree import as_text
from tests.support import builds

QUERIES = np.random.default_rng(5).normal(size=(3, builds.DIMENSION)).astype(np.float32)


def built(words, **declared):
    builds.build(builds.declaration(**declared), "run")
    words.refresh().append(builds.rows(range(60, 75)))
    return open_index(words.refresh(), builds.INDEX)


def test_the_stages_of_a_search_add_up_to_its_time(words, monkeypatch):
    index = built(words, algorithm="vamana")
    honest_matching, honest_scan = kept.matching_rows, brute_force.Scan.search

    def slow(work, seconds):
        def slowed(*arguments):
            time.sleep(seconds)
            return work(*arguments)

        return slowed

    monkeypatch.setattr(kept, "matching_rows", slow(honest_matching, 0.2))
    monkeypatch.setattr(brute_force.Scan, "search", slow(honest_scan, 0.3))
    began = time.perf_counter()
    answers = index.search(QUERIES, 5, where="id >= 20", columns=["word"], explain=True)
    wall = time.perf_counter() - began
    told = explanation_of(answers)
    spent = {stage.name: stage.seconds for stage in told.stages}
    assert sum(spent.values()) == pytest.approx(wall, rel=0.05)
    assert told.seconds == pytest.approx(sum(spent.values()))
    assert spent["find the rows of the condition"] >= 0.2
    assert spent["scan rows outside the index"] >= 0.3
    assert {"open shards", "search shards", "merge answers", "fetch columns"} <= {*spent}
    searched = spent["search shards"]
    assert max(way.seconds for way in told.shards) <= searched


@pytest.mark.parametrize(
    ("algorithm", "where", "exhaustive", "way"),
    [
        ("vamana", None, False, "graph"),
        ("hnsw", "id >= 3", False, "masked graph"),
        ("ivf_pq", None, False, "codes"),
        ("vamana", "id < 6", False, "allowed rows"),
        ("exact", None, False, "all rows"),
        ("exact", "id >= 3", False, "allowed rows"),
        ("vamana", "id >= 3", True, "allowed rows"),
    ],
)
def test_the_way_through_each_shard_is_told(words, algorithm, where, exhaustive, way):
    index = built(words, algorithm=algorithm)
    if way == "masked graph":  # else so few rows are compared
        index._shards.way = AnswerWay.MASK
    options = {"where": where, "exhaustive": exhaustive}
    answers = index.search(QUERIES, 3, explain=True, **options)
    plain = index.search(QUERIES, 3, **options)
    assert answers.equals(plain)
    assert "explanation" not in json.loads(plain.schema.metadata[b"puffin_ann"])
    told = explanation_of(answers)
    assert {shard.way for shard in told.shards} == {way}
    assert sum(shard.rows for shard in told.shards) == 60
    assert told.shards_left_out == 0
    allowed = None if where is None else 57 if ">" in where else 6
    for shard in told.shards:
        assert (shard.rows_allowed is None) == (where is None)
        assert (shard.width is None) == way.endswith("rows")
    if where is not None:
        assert sum(shard.rows_allowed for shard in told.shards) == allowed
    assert (told.rows_scanned, told.files_scanned) == ((0, 0) if where == "id < 6" else (15, 1))
    near = explanation_of(index.within(QUERIES, 1.0, where=where, explain=True))
    assert near.rows_scanned == told.rows_scanned
    assert {shard.way for shard in near.shards} <= {"all rows", "allowed rows"}
    assert near.seconds == pytest.approx(sum(stage.seconds for stage in near.stages))


@pytest.mark.parametrize("way", list(AnswerWay))
def test_a_way_that_was_chosen_by_its_cost_is_told_with_it(words, way):
    index = built(words, algorithm="vamana")
    index._shards.way = way
    told = explanation_of(index.search(QUERIES, 3, where="id >= 3", explain=True))
    names = {"compare": "allowed rows", "mask": "masked graph", "sift": "sifted graph"}
    shards = [shard for shard in told.shards if shard.way == names[way]]
    assert shards
    assert all(shard.estimated_seconds > 0 for shard in shards)


def test_files_of_a_condition_and_why_a_version_was_taken_are_told(words):
    old = words.refresh().current_snapshot().snapshot_id
    index = built(words)
    told = explanation_of(index.search(QUERIES, 3, where="id >= 66", explain=True))
    assert told.why_version == "the newest: the snapshot went on from what it covers"
    assert told.opening_seconds > 0
    assert told.coverage == pytest.approx(60 / 75)
    condition = told.condition
    assert (condition.text, condition.rows_allowed, condition.is_kept) == ("id >= 66", 9, False)
    assert condition.files_out == condition.files - 1 > 0
    assert (condition.row_groups, condition.row_groups_read) == (2, 1)
    assert told.bytes_read["the condition's columns, of the table"] == condition.bytes_read
    assert (told.rows_scanned, told.files_scanned) == (9, 1)
    assert "puffin-ann refresh words_index" in told.why_scanned
    assert told.bytes_read["vectors of data files compared"] == 15 * 4 * builds.DIMENSION
    again = explanation_of(index.search(QUERIES, 3, where="id >= 66", explain=True))
    assert again.condition.is_kept
    assert again.bytes_read["vectors of data files compared"] == 0  # kept
    left = explanation_of(index.search(QUERIES, 3, freshness="indexed", explain=True))
    assert (left.rows_scanned, left.rows_left_out) == (0, 15)
    past = open_index(words, builds.INDEX, old)
    told = explanation_of(past.search(QUERIES, 3, explain=True))
    assert (told.snapshot, told.base_snapshot) == (old, old)
    lines = as_text(again).splitlines()
    assert lines[0].startswith(f"snapshot {again.snapshot}, ")
    assert "  condition id >= 66: 9 rows allowed" in lines
    assert "    known from an earlier search: nothing was read" in lines


def test_files_that_are_compared_by_centroids_are_told(words):
    index = built(words, algorithm="centroid")
    told = explanation_of(index.search(QUERIES, 3, where="id >= 20", explain=True))
    assert told.files_compared >= 1
    assert told.shards == ()
    assert "centroid: " in as_text(told)


def test_nothing_is_noted_unless_it_is_asked_for(words):
    index = built(words)
    answers = index.search(QUERIES, 3)
    with pytest.raises(QueryError, match="search with explain=True"):
        explanation_of(answers)
    with pytest.raises(QueryError, match="only 75 rows"):
        index.search(QUERIES, 76, explain=True)
    assert current() is None
