"""What a Vamana shard's searches read: packed nodes where they pay, whatever is asked for."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from puffin_ann.ann.graph.searcher import Answering
from puffin_ann.ann.simd import vectors as simd
from puffin_ann.ann.vamana import packed_policy
from puffin_ann.ann.vamana.packed.layout import FRAME, PACKED
from puffin_ann.blobs.shards import graph as graph_blob
from puffin_ann.engines.vamana import VamanaEngine
from puffin_ann.settings import Settings
from tests.support.indexes.shard_checks import (
    METRIC_NAMES,
    assert_answers_are_sound,
    nearest,
    opened,
    recall,
)

ENGINE = VamanaEngine()
ROWS, WIDE = 3000, 96


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("wide")
    assert opened("vamana", normal(ROWS, WIDE), where).beam == "edges"
    return where / "shard"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same shard with its links, and without packed nodes."""
    where = tmp_path_factory.mktemp("whole")
    opened("vamana", normal(ROWS, WIDE), where, searched=False)
    return where / "shard"


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    """The same shard with codes, and without packed nodes."""
    where = tmp_path_factory.mktemp("coded")
    assert opened("vamana", normal(ROWS, WIDE), where, beam="pq").beam == "pq"
    return where / "shard"


@pytest.fixture(scope="module")
def by_beam(folder, coded):
    """Of each beam, a folder that it can be opened of."""
    return {"full": folder, "edges": folder, "pq": coded}


def allow(monkeypatch, **settings):
    monkeypatch.setattr(packed_policy, "settings", lambda: Settings(**settings))


def without_records(whole, tmp_path):
    """Return a copy of a shard's folder of which nothing tells whether it has packed nodes."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in whole.iterdir():
        if path.name != FRAME:
            os.link(path, copy / path.name)
    return copy


@pytest.mark.parametrize("beam", ["full", "pq", "edges"])
def test_a_beam_can_be_forced(beam, by_beam):
    shard = ENGINE.open(by_beam[beam], beam)
    assert shard.beam == beam
    queries = normal(40, WIDE, 1)
    answers = shard.search(queries, 10, width=200)
    assert_answers_are_sound(answers, normal(ROWS, WIDE), queries, 10, "l2")
    assert recall(answers[1], nearest(normal(ROWS, WIDE), queries, 10, "l2")[1]) >= 0.95


@pytest.mark.parametrize("beam", ["full", "pq", "edges"])
def test_each_query_of_a_batch_may_have_a_width_of_its_own(beam, by_beam):
    shard = ENGINE.open(by_beam[beam], beam)
    queries, widths = normal(12, WIDE, 1), np.array([10, 80, 10**9] * 4)
    ids, distances = shard.search(queries, 10, width=widths)
    for place, width in enumerate(widths.tolist()):
        alone = shard.search(queries[place : place + 1], 10, width=width)
        np.testing.assert_array_equal(ids[place], alone[0][0])
        np.testing.assert_array_equal(distances[place], alone[1][0])


def test_a_search_over_records_that_keeps_nearly_every_row_finds_the_nearest(folder):
    queries = normal(40, WIDE, 1)
    expected = nearest(normal(ROWS, WIDE), queries, 1, "l2")
    for width in (ROWS - 1, ROWS, 10 * ROWS):
        ids, _ = ENGINE.open(folder, "edges").search(queries, 1, width=width)
        np.testing.assert_array_equal(ids, expected[0])


@pytest.mark.parametrize("beam", ["full", "pq", "edges"])
def test_a_declared_beam_is_taken_when_the_shard_is_opened(beam, tmp_path):
    shard = opened("vamana", normal(1000, 24), tmp_path, beam=beam)
    assert shard.beam == beam
    assert (tmp_path / "shard" / PACKED).exists() == (beam == "edges")


def test_narrow_rows_and_small_shards_are_searched_without_records(tmp_path):
    assert opened("vamana", normal(1000, 24), tmp_path / "narrow").beam == "full"
    assert opened("vamana", normal(200, WIDE), tmp_path / "small").beam == "full"
    for rows in (0, 1, 2):
        shard = opened("vamana", normal(rows, WIDE), tmp_path / str(rows), beam="edges")
        ids, _ = shard.search(normal(2, WIDE, 1), 3, width=10)
        assert ((ids >= 0).sum(axis=1) == rows).all()


@pytest.mark.parametrize(
    "limit", [{"records_max_bytes": 1_000_000}, {"cache_max_bytes": 20_000_000}]
)
def test_records_stay_below_what_the_settings_allow(limit, folder, whole, tmp_path, monkeypatch):
    allow(monkeypatch, **limit)
    assert ENGINE.open(folder).beam == "full"
    copy = without_records(whole, tmp_path)
    assert ENGINE.open(copy).beam == "full"
    assert not (copy / PACKED).exists()


def test_records_are_not_made_on_a_disk_nearly_full(whole, tmp_path, monkeypatch):
    copy = without_records(whole, tmp_path)
    free = SimpleNamespace(free=1_000_000)
    monkeypatch.setattr(packed_policy.shutil, "disk_usage", lambda _: free)
    assert ENGINE.open(copy).beam == "full"


def test_a_shard_that_cannot_be_written_beside_is_searched_without(whole, tmp_path, monkeypatch):
    copy = without_records(whole, tmp_path)

    def refuse(**_):
        raise PermissionError("read-only")

    monkeypatch.setattr(packed_policy.tempfile, "TemporaryDirectory", refuse)
    assert ENGINE.open(copy).beam == "full"
    assert ENGINE.open(copy, "edges").beam == "edges"  # in memory


def test_missing_records_are_made_when_a_shard_is_opened(folder, whole, tmp_path):
    copy = without_records(whole, tmp_path)
    (copy / "records-1-otherwise.npy").write_bytes(b"of another machine")
    assert ENGINE.open(copy).beam == "edges"
    for name in (PACKED, FRAME):
        assert (copy / name).read_bytes() == (folder / name).read_bytes()
    assert (copy / "records-1-otherwise.npy").read_bytes() == b"of another machine"
    assert not list(copy.glob("records-*/"))


@pytest.mark.parametrize("name", [PACKED, FRAME])
def test_records_cut_short_are_made_anew(name, folder, whole, tmp_path, caplog):
    copy = without_records(whole, tmp_path)
    for file_name in (PACKED, FRAME):
        whole = (folder / file_name).read_bytes()
        (copy / file_name).write_bytes(whole[: len(whole) // 2] if file_name == name else whole)
    assert ENGINE.open(copy).beam == "edges"
    assert "made again" in caplog.text
    assert (copy / name).read_bytes() == (folder / name).read_bytes()


def test_codes_are_stored_where_searches_will_read_them_and_nowhere_else(
    coded, whole, tmp_path, monkeypatch
):
    assert graph_blob.open(whole).codes is None  # searches would make packed nodes
    assert graph_blob.open(coded).codes.shape == (ROWS, WIDE // 4)
    assert ENGINE.open(whole, "pq").beam == "full"  # there is nothing else
    long, short = 320, 200
    for rows, dim in ((ROWS, 24), (short, long)):  # narrow ones, and so few that all are compared
        opened("vamana", normal(rows, dim), tmp_path / f"{rows}-{dim}")
        assert graph_blob.open(tmp_path / f"{rows}-{dim}" / "shard").codes is None
    allow(monkeypatch, records_max_bytes=1_000_000)
    for beam, stored in (("auto", (ROWS, 5)), ("full", None), ("edges", None)):
        opened("vamana", normal(ROWS, long), tmp_path / beam, beam=beam, pq_m=5, searched=False)
        codes = graph_blob.open(tmp_path / beam / "shard").codes
        assert (None if codes is None else codes.shape) == stored


def test_resident_bytes_are_what_the_beam_reads(folder, by_beam):
    vectors, rows = ROWS * WIDE * 4, ROWS
    sizes = {beam: ENGINE.open(where, beam).resident_bytes for beam, where in by_beam.items()}
    assert sizes["edges"] == vectors + (folder / PACKED).stat().st_size - 128
    assert sizes["full"] == vectors + rows * (32 * 4 + 2)
    assert sizes["pq"] == sizes["full"] + rows * WIDE // 4


def narrow_clusters():
    centres = np.repeat(normal(10, WIDE), 300, axis=0)
    return centres + np.float32(1e-4) * normal(ROWS, WIDE, 1)


def test_records_that_do_not_find_the_way_are_given_up(tmp_path):
    vectors = narrow_clusters()
    shard = opened("vamana", vectors, tmp_path)
    assert shard.beam == "full"
    assert not (tmp_path / "shard" / PACKED).exists()
    made_at = (tmp_path / "shard" / FRAME).stat().st_mtime_ns
    assert ENGINE.open(tmp_path / "shard").beam == "full"
    assert (tmp_path / "shard" / FRAME).stat().st_mtime_ns == made_at  # not tried again
    queries = vectors[::100] + np.float32(1e-5) * normal(30, WIDE, 2)
    answers = shard.search(queries, 10, width=100)
    assert recall(answers[1], nearest(vectors, queries, 10, "l2")[1]) >= 0.9


def far_clusters():
    return 30 * np.repeat(normal(100, WIDE), 30, axis=0) + normal(ROWS, WIDE, 1)


def copies():
    return np.concatenate([np.tile(normal(5, WIDE), (300, 1)), normal(1500, WIDE, 1)])


def norms_of_many_sizes():
    return normal(ROWS, WIDE) * np.exp(normal(ROWS, 1, 1))


def far_from_the_origin():
    return (1000 + normal(ROWS, WIDE)).astype(np.float32)


def mostly_zeros():
    vectors = normal(ROWS, WIDE)
    vectors[np.random.default_rng(1).random(ROWS) < 0.5] = 0
    return vectors


def one_row_far_away():
    vectors = normal(ROWS, WIDE)
    vectors[1234] *= 1e6
    return vectors


def of_extreme_scale():
    return normal(ROWS, WIDE) * np.float32(5e17)


def tiny():
    return normal(ROWS, WIDE) * np.float32(1e-15)


@pytest.mark.parametrize("metric", METRIC_NAMES)
@pytest.mark.parametrize(
    "kind",
    [
        far_clusters,
        copies,
        norms_of_many_sizes,
        far_from_the_origin,
        mostly_zeros,
        one_row_far_away,
        of_extreme_scale,
        tiny,
    ],
    ids=lambda kind: kind.__name__,
)
def test_answers_on_wide_hard_data(kind, metric, tmp_path):
    vectors = kind()
    queries = vectors[::60] + np.float32(0.1) * np.abs(vectors[::60]).mean() * normal(50, WIDE, 7)
    shard = opened("vamana", vectors, tmp_path, metric=metric)
    answers = shard.search(queries, 10, width=150)
    assert_answers_are_sound(answers, vectors, queries, 10, metric)
    full = ENGINE.open(tmp_path / "shard", "full").search(queries, 10, width=150)
    expected = nearest(vectors, queries, 10, metric)[1]
    assert recall(answers[1], expected) >= min(0.96, recall(full[1], expected) - 0.05)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.99])
def test_deleted_rows_are_passed_through(share, folder):
    vectors, queries = normal(ROWS, WIDE), normal(100, WIDE, 1)
    # The deleted lie together, where some queries are.
    order = np.argsort(vectors[:, 0])
    deleted = np.zeros(ROWS, np.bool_)
    deleted[order[: int(share * ROWS)]] = True
    shard = ENGINE.open(folder, "edges")
    answers = shard.search(queries, 10, width=150, deleted=deleted)
    assert_answers_are_sound(answers, vectors, queries, 10, "l2", deleted)
    expected = nearest(vectors, queries, 10, "l2", deleted)[1]
    full = ENGINE.open(folder, "full").search(queries, 10, width=150, deleted=deleted)
    assert recall(answers[1], expected) >= min(0.95, recall(full[1], expected) - 0.02)
    allowed = shard.search(queries, 10, width=150, allowed=~deleted)
    np.testing.assert_array_equal(answers[0], allowed[0])


@pytest.mark.parametrize("size", [1e-30, 1e-4, 1.0, 1e4, 1e15, 1e30])
def test_queries_of_any_length_are_answered(size, folder):
    vectors, queries = normal(ROWS, WIDE), normal(20, WIDE, 1) * np.float32(size)
    answers = ENGINE.open(folder, "edges").search(queries, 10, width=400)
    assert_answers_are_sound(answers, vectors, queries, 10, "l2")
    assert recall(answers[1], nearest(vectors, queries, 10, "l2")[1]) >= 0.95


def test_answers_do_not_depend_on_threads_or_on_other_queries(folder):
    queries, shard = normal(150, WIDE, 1), ENGINE.open(folder, "edges")
    one, three = (shard.search(queries, 10, width=40, threads=threads) for threads in (1, 3))
    single = [shard.search(query[None], 10, width=40) for query in queries]
    for place in (0, 1):
        np.testing.assert_array_equal(one[place], three[place])
        np.testing.assert_array_equal(one[place], np.concatenate([two[place] for two in single]))


ELSEWHERE = """
import sys, numpy as np
from pathlib import Path
from puffin_ann.ann.graph.searcher import Answering
from puffin_ann.ann.simd import vectors as simd
from puffin_ann.engines.vamana import VamanaEngine
assert simd.LEVEL == sys.argv[2], simd.LEVEL
shard = VamanaEngine().open(Path(sys.argv[1]), "edges")
queries = np.random.default_rng(9).standard_normal((200, 96)).astype(np.float32)
ids, distances = shard.search(queries, 10, width=300)
np.savez(sys.argv[3], ids=ids, distances=distances)
"""


@pytest.mark.parametrize("level", [pytest.param("avx2", marks=pytest.mark.long), "portable"])
def test_every_level_of_vector_instructions_finds_the_same(level, folder, tmp_path):
    if level == "avx2" and simd.LEVEL == "portable":
        level = "portable"  # this machine has no other
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)  # of another order, where that is one
    subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(copy), level, str(tmp_path / "got.npz")],
        env={**os.environ, "PUFFIN_ANN_SIMD": level},
        check=True,
    )
    queries = np.random.default_rng(9).standard_normal((200, WIDE)).astype(np.float32)
    ids, distances = ENGINE.open(folder, "edges").search(queries, 10, width=300)
    got = np.load(tmp_path / "got.npz")
    # The order of float32 sums is the machine's: at a pool's edge it may decide.
    assert (got["ids"] == ids).mean() >= 0.995
    assert (got["distances"] == distances).mean() >= 0.995


def test_wide_rows_are_not_all_compared_when_as_many_are_wanted_as_are_kept(tmp_path, monkeypatch):
    # By 1 bit a dimension rows enter a pool more than once, and leave others no place.
    rows = normal(3000, 16) @ normal(16, 384, 1) + normal(3000, 384, 2) / 2
    shard = opened("vamana", rows, tmp_path)
    assert shard.beam == "edges"
    queries = rows[::60] + normal(50, 384, 3) / 8
    compared = []
    monkeypatch.setattr(
        Answering, "exhaustive", lambda self, queries, k, **_: compared.append(len(queries))
    )
    answers = shard.search(queries, 48, width=48)
    assert not compared
    assert_answers_are_sound(answers, rows, queries, 48, "l2")
