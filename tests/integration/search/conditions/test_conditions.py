"""Searches among the rows that satisfy a condition, held to brute force over PyIceberg's scan."""

import json
import logging
from dataclasses import replace
from itertools import repeat
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo, Or

from puffin_ann import open_index
from puffin_ann.ann.exact import compared_rows
from puffin_ann.ann.exact.compared_rows import Coding
from puffin_ann.ann.exact.kernels_products import HAS_DOTS
from puffin_ann.errors import ColumnNotFoundError, QueryError, StaleIndexError
from puffin_ann.search.conditions import ways
from puffin_ann.search.conditions.gathered import Gathered
from puffin_ann.search.conditions.ways import Way
from puffin_ann.search.shards import comparison
from puffin_ann.search.shards.costs import Costs
from tests.support.falsified.damage import corrupt, forget_cache
from tests.support.lake.conditions import a_condition
from tests.support.lake.tables import delete_equal, delete_positions
from tests.support.lifecycle import builds
from tests.support.lifecycle.refreshes import refresh

QUERIES = np.random.default_rng(5).normal(size=(3, builds.DIMENSION)).astype(np.float32)
ALGORITHMS = ["centroid", "exact", "vamana", "hnsw", "ivf_pq"]
VALUES = {"id": [3, 17, 31, 44, 61, 70], "word": ["w1", "w33", "w61", "w7"]}


def report(answers):
    return json.loads(answers.schema.metadata[b"puffin_ann"])


def live_where(table, says, snapshot_id=None):
    """Rows of a snapshot with a usable vector that satisfy a condition."""
    ids, vectors = builds.live(table, snapshot_id)
    wanted = [bool(says({"id": number, "word": f"w{number}"})) for number in ids.tolist()]
    return ids[wanted], vectors[wanted]


def assert_answers(index, where, rows, k=7, **options):
    """Hold what an index answers among some rows to brute force over these."""
    ids, vectors = rows
    place = {key: at for at, key in enumerate(ids.tolist())}
    for exhaustive in (False, True):
        found = index.search(
            QUERIES,
            k,
            columns=["id"],
            where=where,
            allow_fewer=True,
            exhaustive=exhaustive,
            **options,
        )
        for number, query in enumerate(QUERIES):
            here = found.filter(pa.compute.equal(found.column("query"), number))
            answered = here.column("id").to_pylist()
            assert len(answered) == len(set(answered)) == min(k, len(ids))
            assert set(answered) <= set(place)
            exact = builds.distances(index.metric, query, vectors)
            mine = exact[[place[key] for key in answered]]
            assert here.column("distance").to_numpy() == pytest.approx(mine, rel=1e-6, abs=1e-6)
            if exhaustive:
                np.testing.assert_allclose(mine, np.sort(exact)[:k], rtol=1e-12)
    threshold = 3.6 if index.metric == "l2" else 0.0
    near = index.within(QUERIES, threshold, columns=["id"], where=where, **options)
    for number, query in enumerate(QUERIES):
        here = near.filter(pa.compute.equal(near.column("query"), number)).column("id")
        exact = builds.distances(index.metric, query, vectors)
        assert sorted(here.to_pylist()) == sorted(ids[exact < threshold].tolist())


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_answers_satisfy_the_condition_whatever_became_of_their_rows(words, algorithm, metric):
    builds.build(builds.declaration(algorithm=algorithm, metric=metric), "run")
    words.refresh().append(builds.rows(range(60, 75)))
    words.delete("id >= 20 and id < 33")
    files = sorted(task.file.file_path for task in words.refresh().scan().plan_files())
    delete_positions(words, {files[0]: [2, 3], files[1]: [1]})
    words.refresh()
    random = Random(algorithm)
    for entry in words.history():
        index = open_index(words, builds.INDEX, entry.snapshot_id)
        for _ in range(4):
            where, says = a_condition(random, VALUES)
            rows = live_where(words, says, entry.snapshot_id)
            assert_answers(index, where, rows)
            told = report(index.search(QUERIES, 1, where=where, allow_fewer=True))
            if told["where"] is not None:
                assert told["rows_allowed"] == len(rows[0])


def ways_of(algorithm):
    """The ways to tell an engine of, and the default choice."""
    return (*Way, None) if algorithm in ("vamana", "hnsw", "ivf_pq") else (None,)


@pytest.mark.parametrize("algorithm", ["vamana", "hnsw", "ivf_pq"])
def test_every_way_answers_alike(words, algorithm):
    """With deleted rows, a delta, rows at equal distance, and fewer rows than are wanted."""
    builds.build(builds.declaration(algorithm=algorithm), "run")
    twins = builds.rows(range(60, 75))
    words.refresh().append(twins)
    again = {"id": range(80, 95), "word": [f"w{number}" for number in range(80, 95)]}
    words.refresh().append(
        pa.table({**again, "embedding": twins["embedding"]}, schema=twins.schema)
    )
    refresh(words.refresh(), builds.declaration(algorithm=algorithm))
    words.refresh().delete("id >= 20 and id < 33")
    index = open_index(words.refresh(), builds.INDEX)
    random = Random(algorithm)
    conditions = [a_condition(random, VALUES) for _ in range(4)]
    for way in ways_of(algorithm):
        index._shards.way = way
        for where, says in conditions:
            assert_answers(index, where, live_where(words, says))


@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("coded", [True, False])
def test_allowed_rows_are_compared_alike_where_they_lie_and_copied(
    words, copied, coded, monkeypatch
):
    builds.build(builds.declaration(algorithm="vamana"), "run")
    twins = builds.rows(range(60, 75))
    words.refresh().append(twins)
    refresh(words.refresh(), builds.declaration(algorithm="vamana"))
    words.refresh().delete("id >= 20 and id < 33")
    monkeypatch.setattr(compared_rows, "WORTH_CODING", 0 if coded else 10**9)
    monkeypatch.setattr(Costs, "gathering_pays", lambda *_: copied)
    index = open_index(words.refresh(), builds.INDEX)
    index._shards.way = Way.COMPARE
    random, gathered = Random(f"{copied} {coded}"), []
    made = Gathered.of
    monkeypatch.setattr(
        Gathered, "of", lambda parts, known: gathered.append(parts) or made(parts, known)
    )
    for _ in range(6):
        where, says = a_condition(random, VALUES)
        rows = live_where(words, says)
        assert_answers(index, where, rows)
    assert bool(gathered) is copied
    for engine in (shard.loaded.engine for shard in index._shards._opened.open_all()):
        if not copied:
            assert (engine.coding_after(0) is Coding.DONE) is (coded and HAS_DOTS)


@pytest.mark.parametrize(
    ("algorithm", "form"),
    [
        ("vamana", "float16"),
        ("hnsw", "float16"),
        ("exact", "int8"),
        ("ivf_pq", "int8"),
        ("ivf_pq", "none"),
    ],
)
def test_answers_satisfy_the_condition_however_vectors_are_stored(
    words, algorithm, form, monkeypatch
):
    # Else shards of so few rows keep their vectors.
    monkeypatch.setattr("puffin_ann.ann.ivf.lists.LEAST_ROWS", 4)
    builds.build(builds.declaration(algorithm=algorithm, vectors=form, recall_target=0.5), "run")
    words.refresh().append(builds.rows(range(60, 75)))
    words.delete("id >= 20 and id < 33")
    random = Random(form)
    index = open_index(words.refresh(), builds.INDEX)
    assert index.version.routing.vectors == form
    for _ in range(12):
        where, says = a_condition(random, VALUES)
        assert_answers(index, where, live_where(words, says))


def test_rows_deleted_by_equality_satisfy_no_condition(words):
    builds.build(builds.declaration(algorithm="vamana"), "run")
    ids, vectors = builds.live(words.refresh())
    changed = builds.rows([5, 6, 50], seed=1)
    delete_equal(words, changed.select(["id"]), added=changed)
    delete_equal(words.refresh(), pa.table({"id": [7]}))
    for number, vector in zip([5, 6, 50], changed["embedding"].to_pylist(), strict=True):
        vectors[ids == number] = vector
    index = open_index(words.refresh(), builds.INDEX)
    for where, says in (("id < 9", ids < 9), ("id > 3 and id <= 50", (ids > 3) & (ids <= 50))):
        says = says & (ids != 7)
        assert_answers(index, where, (ids[says], vectors[says]))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_only_indexed_rows_are_answered_where_those_alone_are_asked_for(words, algorithm):
    builds.build(builds.declaration(algorithm=algorithm), "run")
    words.refresh().append(builds.rows(range(60, 75)))
    file = next(iter(words.refresh().scan("id < 10").plan_files())).file.file_path
    delete_positions(words, {file: [2, 3]})
    index = open_index(words.refresh(), builds.INDEX)
    random = Random(algorithm)
    conditions = [a_condition(random, VALUES) for _ in range(3)]
    for way in ways_of(algorithm):
        index._shards.way = way
        for where, says in [("id >= 50", lambda row: row["id"] >= 50), *conditions]:
            ids, vectors = live_where(words, says)
            rows = ids[ids < 60], vectors[ids < 60]
            assert_answers(index, where, rows, freshness="indexed")


def test_rows_outside_the_index_are_scanned_as_the_policy_says(words, caplog):
    builds.build(builds.declaration(), "run")
    covered = open_index(words.refresh(), builds.INDEX, stale_policy="fail")
    assert len(covered.search(QUERIES, 2)) == 6  # nothing is outside
    words.append(builds.rows(range(60, 75)))
    index = open_index(words.refresh(), builds.INDEX, stale_policy="fail")
    for ask in (
        lambda: index.search(QUERIES, 2),
        lambda: index.search(QUERIES, 2, exhaustive=True),
        lambda: index.within(QUERIES, 1.0),
    ):
        with pytest.raises(StaleIndexError, match=r"15 rows in 1 data file .*refresh words_index"):
            ask()
    with pytest.raises(StaleIndexError, match="does not cover 3 rows"):
        index.search(QUERIES, 2, where="id between 50 and 62")
    assert len(index.search(QUERIES, 2, where="id < 60")) == 6
    assert len(index.search(QUERIES, 2, freshness="indexed")) == 6
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    warned = index.search(QUERIES, 2, stale_policy="warn")
    assert "does not cover 15 rows" in caplog.text
    assert warned.equals(index.search(QUERIES, 2, stale_policy="scan"))
    with pytest.raises(QueryError, match="stale_policy is 'never'"):
        index.search(QUERIES, 2, stale_policy="never")
    with pytest.raises(QueryError, match="stale_policy"):
        open_index(words, builds.INDEX, stale_policy="")


def test_rows_that_satisfy_a_condition_are_looked_for_in_every_shard(words):
    """They may lie in clusters far from the query: shards of its nearest cells would not do."""
    declared = builds.declaration(algorithm="exact", shards=3, partitions_per_shard=4)
    builds.build(declared, "run")
    index = open_index(words.refresh(), builds.INDEX)
    # As if the gate had found one cell enough: it asks without a condition.
    routing = replace(index.version.routing, probe_partitions=1)
    index.version = replace(index.version, routing=routing)
    assert report(index.search(QUERIES[:1], 1))["shards_probed"] == 1
    assert report(index.search(QUERIES[:1], 1, where="id < 50"))["shards_probed"] == 3


def test_too_few_rows_that_satisfy_a_condition_are_counted(words):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    with pytest.raises(QueryError, match="k is 5, but only 3 rows satisfy the condition 'id < 3'"):
        index.search(QUERIES, 5, where="id < 3")
    assert len(index.search(QUERIES, 5, where="id < 3", allow_fewer=True)) == 9
    with pytest.raises(QueryError, match="no rows satisfy the condition 'id > 1000'") as refused:
        index.search(QUERIES, 1, where="id > 1000")
    assert "allow" not in str(refused.value)
    with pytest.raises(QueryError, match="only 60 rows satisfy") as refused:
        index.search(QUERIES, 61, where=f"id in ({', '.join(map(str, range(9000)))})")
    assert len(str(refused.value)) < 500
    assert len(index.search(QUERIES, 1, where="id > 1000", allow_fewer=True)) == 0
    assert len(index.within(QUERIES, 100.0, where="id > 1000")) == 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("way", [None, *Way])
def test_no_queries_have_no_answers(words, way):
    builds.build(builds.declaration(algorithm="vamana"), "run")
    index = open_index(words.refresh(), builds.INDEX)
    index._shards.way = way
    for where in ("id < 30", "id < 190"):
        assert len(index.search(QUERIES[:0], 2, where=where)) == 0
        assert len(index.within(QUERIES[:0], 1.0, where=where)) == 0


def test_what_cannot_be_a_condition_is_told(words):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    with pytest.raises(ColumnNotFoundError, match=r"where: test.demo.words has no column 'nope'"):
        index.search(QUERIES, 1, where="nope = 1")
    with pytest.raises(QueryError, match="of type long"):
        index.within(QUERIES, 1.0, where="id = 'x'")


def test_a_condition_that_is_nested_too_deep_is_refused_wherever_that_shows(words):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    said = []

    def answered(depth):
        where = EqualTo("id", 0)
        for number in range(depth):
            where = Or(where, EqualTo("id", number))
        try:
            return len(index.search(QUERIES, 1, where=where)) == len(QUERIES)
        except QueryError as error:
            said.append(str(error))
            return False

    shallow, deep = 1, 1000
    while deep - shallow > 1:
        middle = (shallow + deep) // 2
        shallow, deep = (middle, deep) if answered(middle) else (shallow, middle)
    assert 50 < shallow < 999
    assert not any(answered(depth) for depth in range(deep, deep + 12))
    assert all("nested too deep" in what for what in said)


def test_a_condition_that_all_rows_satisfy_is_none(words):
    builds.build(builds.declaration(algorithm="vamana"), "run")
    index = open_index(words.refresh(), builds.INDEX)
    assert index.search(QUERIES, 5, where=AlwaysTrue()).equals(index.search(QUERIES, 5))


def test_columns_have_the_names_of_the_snapshot_asked_for(words):
    builds.build(builds.declaration(), "run")
    old = words.refresh().current_snapshot().snapshot_id
    with words.update_schema() as update:
        update.rename_column("word", "term")
    renamed = open_index(words.refresh(), builds.INDEX)
    assert len(renamed.search(QUERIES[:1], 1, where="term = 'w5'")) == 1
    late = builds.rows(range(60, 63)).rename_columns(["id", "term", "embedding"])
    words.append(late)
    now = open_index(words.refresh(), builds.INDEX)
    assert len(now.search(QUERIES[:1], 2, where="term in ('w5', 'w61')")) == 2
    with pytest.raises(ColumnNotFoundError, match="'word'"):
        now.search(QUERIES[:1], 1, where="word = 'w5'")
    then = open_index(words, builds.INDEX, old)
    assert len(then.search(QUERIES[:1], 1, where="word = 'w5'")) == 1
    with pytest.raises(ColumnNotFoundError, match="'term'"):
        then.search(QUERIES[:1], 1, where="term = 'w5'")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_branches_and_tags_are_searched_by_conditions(words, algorithm):
    builds.build(builds.declaration(algorithm=algorithm), "run")
    current = words.refresh().current_snapshot().snapshot_id
    words.manage_snapshots().create_tag(snapshot_id=current, tag_name="then").commit()
    words.manage_snapshots().create_branch(snapshot_id=current, branch_name="side").commit()
    words.refresh().append(builds.rows(range(60, 70)), branch="side")
    words.refresh().append(builds.rows(range(70, 80)))
    words.refresh().delete("id >= 25 and id < 28")
    words.refresh()
    random = Random(algorithm)
    conditions = [a_condition(random, VALUES) for _ in range(2)]
    for ref, new in (("then", []), ("side", range(60, 70)), ("main", range(70, 80))):
        index = open_index(words, builds.INDEX, ref=ref)
        found = index.search(QUERIES[:1], 30, where="id >= 60", columns=["id"], allow_fewer=True)
        assert sorted(found.column("id").to_pylist()) == list(new)
        for way in ways_of(algorithm):
            index._shards.way = way
            for where, says in conditions:
                assert_answers(index, where, live_where(words, says, index.view.snapshot_id))


def test_the_rows_of_a_condition_are_read_once(words, monkeypatch):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    first = index.search(QUERIES, 2, where="word like 'w1%'")

    def refuse(*_args):
        raise AssertionError("the table was read again")

    monkeypatch.setattr("puffin_ann.search.conditions.kept.matching_rows", refuse)
    again = open_index(words, builds.INDEX)
    assert again.search(QUERIES, 2, where="word like 'w1%'").equals(first)
    assert (
        index.search(QUERIES, 2, where="word  like  'w1%'")
        .column("locator")
        .equals(first.column("locator"))
    )


def test_rows_that_take_more_than_was_expected_are_not_kept(words, monkeypatch):
    """As those do that cannot be coded: they are gathered once, and compared where they lie."""
    builds.build(builds.declaration(algorithm="vamana"), "run")
    index = open_index(words.refresh(), builds.INDEX)
    index.warm()
    index._shards.way = ways.Way.COMPARE
    monkeypatch.setattr(comparison, "GATHERED_BYTES", 100)
    expected = index.search(QUERIES, 2, where="id < 30", exhaustive=True)
    for _ in range(3):
        found = index.search(QUERIES, 2, where="id < 30")
        assert found.column("locator").equals(expected.column("locator"))
        allowed = index._allowed("id < 30")
        assert allowed.gathered is None
        assert not allowed.may_be_gathered


def test_rows_are_gathered_once_enough_queries_share_what_that_takes(words, monkeypatch):
    builds.build(builds.declaration(algorithm="vamana"), "run")
    index = open_index(words.refresh(), builds.INDEX)
    monkeypatch.setattr(ways, "GATHERED", 1e-3)
    is_gathered = []
    for _ in range(3):
        index.search(QUERIES[:1], 2, where="id < 30")
        allowed = index._allowed("id < 30")
        of_shards = [rows.is_gathered for rows in allowed._shards.all()]
        is_gathered.append(allowed.gathered is not None or any(of_shards))
        allowed.asked = 10**9
    assert is_gathered == [False, True, True]


@pytest.mark.parametrize("gain", [1.0, 0.25, 0.0])
def test_who_would_gain_nothing_has_no_part_in_copying_rows(words, monkeypatch, gain):
    builds.build(builds.declaration(algorithm="vamana"), "run")
    index = open_index(words.refresh(), builds.INDEX)
    monkeypatch.setattr(Costs, "gain_of_gathering", lambda *_: gain)
    monkeypatch.setattr(Costs, "sifting_pays", lambda *_: repeat(True))
    index._shards.way = ways.Way.SIFT
    where, queries = "id < 50", len(QUERIES)
    index.search(QUERIES, 2, where=where)
    allowed = index._allowed(where)
    enough = queries - round(allowed.sifted.short)
    assert enough > 0
    assert (allowed.asked, allowed.settled) == (queries, (1 - gain) * enough)
    assert allowed.sharing == 2 * (queries - allowed.settled)


def test_a_search_by_a_condition_goes_on_without_a_damaged_shard(words):
    builds.build(builds.declaration(), "run")
    index = open_index(words.refresh(), builds.INDEX)
    ids, vectors = builds.live(words)
    chosen = ids < 40
    corrupt(index.version.path.removeprefix("file://"), "rows", shard=1)
    forget_cache()
    damaged = open_index(words, builds.INDEX)
    assert_answers(damaged, "id < 40", (ids[chosen], vectors[chosen]))
    assert report(damaged.search(QUERIES, 3, where="id < 40"))["damaged"]
