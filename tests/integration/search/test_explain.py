"""What a search tells of how it was answered, held to what it did."""

import json
import time
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from puffin_ann import open_index
from puffin_ann.errors import QueryError
from puffin_ann.search import brute_force
from puffin_ann.search.cache.local_cache import LocalCache
from puffin_ann.search.conditions import kept, ways
from puffin_ann.search.conditions.expected import CALLED_FOR_GATHERED, SEARCHED
from puffin_ann.search.conditions.gathered import Gathered
from puffin_ann.search.conditions.ways import Way as AnswerWay
from puffin_ann.search.explain.explanation import explanation_of
from puffin_ann.search.explain.recorder import current
from puffin_ann.search.explain.tree import as_text
from puffin_ann.search.shards.among import _Asked
from puffin_ann.search.shards.costs import Costs
from puffin_ann.search.shards.opening.snapshot_shard import SnapshotShard
from puffin_ann.search.shards.tier import ShardTier
from tests.support.lifecycle import builds
from tests.support.lifecycle.refreshes import refresh
from tests.support.paths import SAMPLE

QUERIES = np.random.default_rng(5).normal(size=(3, builds.DIMENSION)).astype(np.float32)


def built(words, **declared):
    builds.build(builds.declaration(**declared), "run")
    words.refresh().append(builds.rows(range(60, 75)))
    return open_index(words.refresh(), builds.INDEX)


@pytest.mark.parametrize("options", [{}, {"where": "id >= 20"}, {"columns": ["word"]}])
@pytest.mark.parametrize("queries", [QUERIES, QUERIES[:1]])
def test_the_stages_of_a_short_search_add_up_to_its_time(words, options, queries):
    """To tell of it takes a good part of such a search, and is one of them."""
    index = built(words, algorithm="vamana")

    def share_told(search):
        began = time.perf_counter()
        answers = search()
        wall = time.perf_counter() - began
        told = explanation_of(answers)
        assert told.seconds == pytest.approx(sum(stage.seconds for stage in told.stages))
        assert told.stages[-1].name == "tell of it"
        return told.seconds / wall

    def nearest():
        return index.search(queries, 3, explain=True, **options)

    def near():
        return index.within(queries, 1.0, explain=True, **options)

    for search in (nearest, near):
        assert median(share_told(search) for _ in range(31)) == pytest.approx(1.0, rel=0.05)


def test_time_is_told_of_the_stage_that_took_it(words, monkeypatch):
    index = built(words, algorithm="vamana")
    honest_matching, honest_scan = kept.matching_rows, brute_force.Scan.search

    def slow(work, seconds):
        def slowed(*arguments):
            time.sleep(seconds)
            return work(*arguments)

        return slowed

    monkeypatch.setattr(kept, "matching_rows", slow(honest_matching, 0.2))
    monkeypatch.setattr(brute_force.Scan, "search", slow(honest_scan, 0.3))
    answers = index.search(QUERIES, 5, where="id >= 20", columns=["word"], explain=True)
    told = explanation_of(answers)
    spent = {stage.name: stage.seconds for stage in told.stages}
    assert spent["find the rows of the condition"] >= 0.2
    assert spent["scan rows outside the index"] >= 0.3
    assert {"open shards", "search shards", "merge answers", "fetch columns"} <= {*spent}
    searched = sum(spent.get(name, 0.0) for name in ("open shards", "gather rows", "search shards"))
    assert max(way.seconds for way in told.shards) <= searched


@pytest.mark.parametrize(
    ("algorithm", "where", "exhaustive", "way"),
    [
        ("vamana", None, False, "graph"),
        ("hnsw", "id >= 3", False, "masked graph"),
        ("ivf_pq", None, False, "codes"),
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
    for shard in told.shards:
        assert min(shard.seconds, shard.estimated_seconds) > 0
        assert (shard.rows_allowed is None) == (where is None)
        assert (shard.width is None) == way.endswith("rows")
    if where is not None:
        assert sum(shard.rows_allowed for shard in told.shards) == 57
    assert (told.rows_scanned, told.files_scanned) == (15, 1)
    near = explanation_of(index.within(QUERIES, 1.0, where=where, explain=True))
    assert near.rows_scanned == told.rows_scanned
    assert {shard.way for shard in near.shards} <= {"all rows", "allowed rows"}
    spent = {stage.name: stage.seconds for stage in near.stages}
    assert all(shard.seconds > 0 for shard in near.shards)
    assert sum(shard.seconds for shard in near.shards) <= spent["compare rows"]
    assert spent["scan rows outside the index"] > 0


@pytest.mark.parametrize("way", list(AnswerWay))
def test_a_way_that_was_chosen_by_its_cost_is_told_with_it(words, way):
    index = built(words, algorithm="vamana")
    index._shards.way = way
    told = explanation_of(index.search(QUERIES, 3, where="id >= 3", explain=True))
    compared = {"allowed rows", "gathered rows"}
    names = {"compare": compared, "mask": {"masked graph"}, "sift": {"sifted graph"}}
    shards = [shard for shard in told.shards if shard.way in names[way]]
    assert shards
    assert all(shard.estimated_seconds > 0 for shard in shards)
    if way is AnswerWay.MASK:
        assert {other for shard in shards for other in shard.instead} == compared
        assert all(min(shard.instead.values()) > 0 for shard in shards)
        assert "      instead, as expected: allowed rows compared" in as_text(told)


def test_nothing_is_expected_of_a_shard_that_has_no_row_to_answer(words):
    index = built(words, algorithm="vamana")
    told = explanation_of(index.search(QUERIES, 3, where="id >= 60", explain=True))
    assert [way.rows_allowed for way in told.shards] == [0] * len(told.shards)
    assert not any(way.instead or way.estimated_seconds for way in told.shards)


def test_what_sifting_is_expected_to_take_counts_the_rows_it_lists(words):
    index = built(words, algorithm="hnsw")
    index._shards.way = AnswerWay.SIFT
    told = explanation_of(index.search(QUERIES[:1], 3, where="id >= 3", explain=True))
    shards = [shard for shard in told.shards if shard.way == "sifted graph"]
    assert shards
    for shard in shards:
        listed = ways.wanted(3, 57 / 60)
        cost = ways.sifted("hnsw", builds.DIMENSION, shard.width, listed, 1)
        assert shard.estimated_seconds == pytest.approx(cost + SEARCHED)
        assert cost > ways.walked("hnsw", builds.DIMENSION, shard.width, 1)


def test_nothing_is_expected_where_the_table_is_read_unless_a_way_was_chosen_by_it(words):
    index = built(words, algorithm="ivf_pq", vectors="int8")
    for options in ({}, {"exhaustive": True}, {"where": "id >= 3", "exhaustive": True}):
        told = explanation_of(index.search(QUERIES, 3, explain=True, **options))
        assert {shard.estimated_seconds for shard in told.shards} == {None}
    told = explanation_of(index.search(QUERIES, 3, where="id >= 3", explain=True))
    assert all(shard.estimated_seconds > 0 for shard in told.shards)
    assert all("gathered rows" not in shard.instead for shard in told.shards)
    assert not told.ways_expected


@pytest.mark.parametrize("way", [None, *AnswerWay])
def test_rows_of_a_delta_are_told_as_compared(words, way):
    declared = builds.declaration(algorithm="vamana", refresh={"delta_ratio": 0.3})
    builds.build(declared, "run")
    words.refresh().append(builds.rows(range(60, 75)))
    refresh(words.refresh(), declared)
    index = open_index(words.refresh(), builds.INDEX)
    index._shards.way = way
    where = None if way is None else "id >= 3"
    told = explanation_of(index.search(QUERIES, 3, where=where, explain=True))
    deltas = [shard for shard in told.shards if shard.kind == "delta"]
    assert deltas or any(shard.kind == "all" for shard in told.shards)
    for delta in deltas:
        assert (delta.rows, delta.rows_allowed, delta.width) == (15, where and 15, None)
        assert delta.way.endswith("rows")
        assert delta.estimated_seconds > 0


@pytest.mark.parametrize("copied", [True, False])
def test_rows_of_all_shards_that_are_compared_in_one_go_are_told(words, copied, monkeypatch):
    monkeypatch.setattr(Costs, "gathering_pays", lambda *_: copied)
    index = built(words, algorithm="vamana")
    told = explanation_of(index.search(QUERIES, 3, where="id < 6", explain=True))
    whole, *shards = told.shards
    assert (whole.shard_id, whole.kind) == (None, "all")
    assert whole.way == ("gathered rows" if copied else "allowed rows")
    assert (whole.rows, whole.rows_allowed, whole.queries) == (60, 6, 3)
    assert whole.seconds > 0
    assert whole.estimated_seconds > 0
    assert (whole.estimated_once > 0) is copied
    assert whole.is_first
    assert {*told.ways_expected} == {
        "allowed rows",
        "gathered rows",
        "masked graph",
        "sifted graph",
    }
    assert [shard.way for shard in shards] == ([] if copied else ["allowed rows"] * 2)
    assert told.shards_left_out == 0
    tree, how = as_text(told), "gathered and compared" if copied else "compared where they lie"
    assert f"    allowed rows of all shards: {how}, 60 rows, 6 allowed, 3 queries" in tree
    assert ("vamana: all shards in one go" in tree) is copied
    shared = "gathering and coding shared by 6 queries, half to come"
    ways_title = f"    ways through all shards, as expected; {shared}"
    assert f"{ways_title}\n      allowed rows " in tree
    again = explanation_of(index.search(QUERIES, 3, where="id < 6", explain=True))
    assert again.queries_sharing == 12
    assert not again.shards[0].is_first
    assert again.shards[0].estimated_once == 0.0
    assert again.shards[0].estimated_seconds < whole.estimated_seconds or not copied


@pytest.fixture
def drawn(catalog):
    """6,000 rows of the sample in four shards, each with a number drawn for it, and queries."""
    words = pq.read_table(SAMPLE, columns=["embedding"])
    rows = words.slice(0, 6000).append_column("draw", pa.array(np.arange(6000) * 7919 % 6000))
    table = catalog.create_table("demo.words", schema=rows.schema)
    table.append(rows)
    declared = builds.declaration(algorithm="vamana", shards=4, partitions_per_shard=8, gate={})
    builds.build(declared, "run")
    queries = np.stack(words.slice(6000, 20)["embedding"].to_numpy(zero_copy_only=False))
    return table.refresh(), queries.astype(np.float32)


WORK = {
    "gathered rows": (Gathered, "nearest"),
    "allowed rows": (ShardTier, "exhaustive"),
    "sifted graph": (_Asked, "sift"),
    "each for itself": (SnapshotShard, "search"),
}
"""What is called, by the way that an answer takes."""


@pytest.fixture
def called(monkeypatch):
    """The ways whose work was called, in order."""
    ways_called = []

    def noting(way, work):
        def noted(*arguments, **options):
            ways_called.append(way)
            return work(*arguments, **options)

        return noted

    for way, (owner, name) in WORK.items():
        monkeypatch.setattr(owner, name, noting(way, getattr(owner, name)))
    return ways_called


def test_a_search_that_is_explained_takes_the_way_of_one_that_is_not(drawn, called):
    table, queries = drawn
    plain, explained = open_index(table, builds.INDEX), open_index(table, builds.INDEX)
    taken = set()
    for most in (5900, 3000, 600, 30):
        for some in (queries[:1], queries[1:2], queries, queries[:3], queries[5:6]):
            plain.search(some, 10, where=f"draw < {most}")
            ways_taken = [*called]
            called.clear()
            answers = explained.search(some, 10, where=f"draw < {most}", explain=True)
            assert called == ways_taken
            called.clear()
            taken |= {*ways_taken}
            shards = explanation_of(answers).shards
            together = {shard.way for shard in shards if shard.kind == "all"}
            assert together == {*ways_taken} & {"gathered rows", "allowed rows"}
            is_sifted = any(shard.way == "sifted graph" for shard in shards)
            assert is_sifted is ("sifted graph" in ways_taken)
    assert len(taken) > 1


def test_rows_that_a_search_copies_and_codes_are_expected_to_take_that_long_once(drawn):
    """Dealt out among queries to come, they were told to take a quarter to an eighth of it."""
    table, queries = drawn
    index = open_index(table, builds.INDEX)
    index.warm()
    index._shards.way = AnswerWay.COMPARE
    first, later = (
        explanation_of(index.search(queries, 10, where="draw < 600", explain=True)).shards[0]
        for _ in range(2)
    )
    assert first.way == later.way == "gathered rows"
    assert first.estimated_once > ways.GATHERED * 600 * index.dimension
    assert later.estimated_once == 0.0
    assert CALLED_FOR_GATHERED < later.estimated_seconds < first.estimated_seconds


def test_what_is_expected_says_what_it_leaves_out(drawn):
    table, queries = drawn
    index = open_index(table, builds.INDEX)
    first = as_text(explanation_of(index.search(queries, 10, explain=True)))
    assert " expected once its pages are read\n" in first
    assert "    expected: the time of one thread, shards in memory" in first
    few = "of fewer than 32 queries most may be the way there and back"
    assert few in first
    again = as_text(explanation_of(index.search(np.tile(queries, (4, 1)), 10, explain=True)))
    assert " expected\n" in again
    assert "once its pages are read" not in again
    assert few not in again


def test_what_came_after_queries_were_left_short_is_told_after_it(drawn, monkeypatch):
    table, queries = drawn
    index = open_index(table, builds.INDEX)
    index.warm()
    monkeypatch.setattr(_Asked, "may_pay", lambda *_: True)
    monkeypatch.setattr(_Asked, "pays", lambda *_: True)
    monkeypatch.setattr(ways, "is_enough", lambda distances, *_: np.arange(len(distances)) % 3 > 0)
    told = explanation_of(index.search(queries, 10, where="draw < 600", explain=True))
    shown = [(shard.way, shard.kind) for shard in told.shards]
    sifted = [place for place, (way, _) in enumerate(shown) if way == "sifted graph"]
    (whole,) = (place for place, (_, kind) in enumerate(shown) if kind == "all")
    assert sifted
    assert max(sifted) < whole
    assert sum(shard.kind == "all" for shard in told.shards) == 1
    assert told.shards[whole].queries == 7  # of 20, every third was left short
    lines = as_text(told).splitlines()
    after = [line.startswith("    allowed rows of all shards") for line in lines].index(True)
    assert lines[after - 1].startswith("    shard ")
    assert "other rows sifted out" in lines[after - 1]


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


def test_a_long_condition_of_several_lines_is_told_by_its_beginning_on_one(words):
    where = f"id >= 66\n  and id not in ({', '.join(map(str, range(5000, 9000)))})"
    told = explanation_of(built(words).search(QUERIES, 3, where=where, explain=True))
    assert told.condition.text == where
    (line,) = [line for line in as_text(told).splitlines() if "condition id" in line]
    assert line.startswith("  condition id >= 66 and id not in (5000, 5001, ")
    assert line.endswith(f"...: {told.condition.rows_allowed} rows allowed")
    assert len(line) < 250


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


def test_bytes_of_shards_are_those_that_were_read_not_those_they_take_unpacked(words, tmp_path):
    index = built(words, algorithm="vamana")
    cache = index.cache = LocalCache(tmp_path / "cache")
    told = explanation_of(index.search(QUERIES, 3, explain=True))
    read = told.bytes_read["shards brought to local disk"]
    with words.io.new_input(index.version.path).open() as file:
        file.seek(0, 2)
        assert 0 < read < file.tell()
    assert cache.statistics.filled_bytes > read
    again = explanation_of(index.search(QUERIES, 3, explain=True))
    assert again.bytes_read["shards brought to local disk"] == 0
