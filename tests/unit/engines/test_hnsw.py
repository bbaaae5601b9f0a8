"""HNSW shards beyond what any engine promises: batches, layers, and what corrupted files may do."""

import dataclasses
import io
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.hnsw import hnswlib_index
from puffin_ann.ann.hnsw.layers import first_lists, list_layers
from puffin_ann.blobs.shards import hnsw as hnsw_blob
from puffin_ann.engines import engine
from puffin_ann.errors import BlobFormatError, FormatError
from tests.support.indexes.shard_checks import (
    METRIC_NAMES,
    assert_answers_are_sound,
    nearest,
    opened,
    recall,
)
from tests.support.paths import ROOT

ENGINE = engine("hnsw")


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def built(vectors, folder, *, metric="l2", seed=0, threads=2, **parameters):
    folder.mkdir()
    return ENGINE.build(
        vectors,
        metric=metric,
        parameters=ENGINE.check(parameters, vectors.shape[1]),
        norm_bound=0.0,
        seed=seed,
        threads=threads,
        scratch=folder,
    )


def unpacked(value, folder):
    folder.mkdir()
    blob = io.BytesIO()
    ENGINE.encode(value, blob)
    ENGINE.unpack(io.BytesIO(blob.getvalue()), folder)
    return folder


def inserted(directory, added, folder, *, deleted=None, seed=0, threads=1):
    folder.mkdir()
    return ENGINE.insert(
        directory,
        added,
        deleted=deleted,
        parameters=ENGINE.check({}, None),
        norm_bound=0.0,
        seed=seed,
        threads=threads,
        scratch=folder,
    )


def reached(value):
    """Rows that can be reached from the entry in layer 0, in plain Python."""
    seen, stack = {value.entry}, [value.entry]
    while stack:
        node = stack.pop()
        for row in value.neighbours[node, : value.degrees[node]].tolist():
            if row not in seen:
                seen.add(row)
                stack.append(row)
    return seen


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_the_same_seed_gives_the_same_blob_whatever_the_threads(metric, tmp_path):
    vectors = normal(2000, 12)
    blobs = []
    for threads in (1, 2, 3):
        out = io.BytesIO()
        ENGINE.encode(built(vectors, tmp_path / f"{threads}", metric=metric, threads=threads), out)
        blobs.append(out.getvalue())
    assert blobs[0] == blobs[1] == blobs[2]


def test_another_seed_gives_other_levels(tmp_path):
    vectors = normal(1000, 4)
    one, other = built(vectors, tmp_path / "a"), built(vectors, tmp_path / "b", seed=1)
    assert (one.levels != other.levels).any()


def test_a_build_that_gives_up_being_reproducible_is_as_good(tmp_path):
    vectors, queries = normal(3000, 16), normal(50, 16, 1)
    shard = opened("hnsw", vectors, tmp_path, reproducible=False)
    answers = shard.search(queries, 10, width=100)
    assert_answers_are_sound(answers, vectors, queries, 10, "l2")
    assert recall(answers[1], nearest(vectors, queries, 10, "l2")[1]) > 0.95


@pytest.mark.parametrize("kind", ["normal", "equal", "grid", "clusters"])
def test_every_row_can_be_reached_from_the_entry(kind, tmp_path):
    vectors = {
        "normal": normal(3000, 3),
        "equal": np.concatenate([np.tile(normal(1, 3), (700, 1)), normal(300, 3, 1)]),
        "grid": np.stack(np.meshgrid(*[np.arange(10.0)] * 3), -1).reshape(-1, 3).astype("f4"),
        "clusters": (1000 * normal(9, 3)[:, None] + normal(900, 3, 1).reshape(9, 100, 3)),
    }[kind].reshape(-1, 3)
    value = built(vectors, tmp_path / "s", M=2)
    assert len(reached(value)) == len(vectors)
    layer = list_layers(value.levels)
    used = np.arange(value.links)[None, :] < value.upper_degrees[:, None]
    assert (value.levels[value.upper_neighbours] >= layer[:, None])[used].all()
    assert value.levels[value.entry] == value.levels.max()


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_only_the_entry_leads_to_are_found(seed, tmp_path):
    """By inner product lists lead to long rows, and from where a search begins to no others."""
    vectors = normal(1000, 4, seed) * np.exp(2 * normal(1000, 1, seed + 100))
    vectors[np.random.default_rng(seed).random(1000) < 0.3] = 0
    norms = np.linalg.norm(vectors, axis=1)
    deleted = norms > np.quantile(norms, 0.4)
    queries = normal(40, 4, seed=7)
    shard = opened("hnsw", vectors, tmp_path, metric="ip", M=2)
    # Three times as many are kept where so many are deleted, which is all, and none is compared.
    answers = shard.search(queries, 10, width=399, deleted=deleted)
    np.testing.assert_array_equal(answers[1], nearest(vectors, queries, 10, "ip", deleted)[1])


def test_the_layers_are_those_hnswlib_searches(tmp_path):
    """What we read off hnswlib's file and write for it again is, to hnswlib, the same graph."""
    import hnswlib

    vectors, queries = normal(3000, 16), normal(40, 16, 1)
    value = built(vectors, tmp_path / "s")
    layers = hnswlib_index.Layers(
        value.neighbours,
        value.degrees,
        value.levels,
        value.upper_neighbours,
        value.upper_degrees,
        value.entry,
    )
    path = tmp_path / "again.bin"
    hnswlib_index._write(path, vectors, layers, 200)
    index = hnswlib.Index(space="l2", dim=16)
    index.load_index(str(path))
    index.set_ef(100)
    labels, _ = index.knn_query(queries, 10)
    assert np.mean(labels == nearest(vectors, queries, 10, "l2")[0]) > 0.97
    assert first_lists(value.levels)[-1] + value.levels[-1] == len(value.upper_degrees)


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_a_batch_is_inserted_behind_the_rows_that_are_there(metric, tmp_path):
    vectors, queries = normal(2600, 12), normal(60, 12, 1)
    known = unpacked(built(vectors[:2000], tmp_path / "s", metric=metric), tmp_path / "o")
    grown = inserted(known, vectors[2000:], tmp_path / "i")
    assert len(reached(grown)) == len(vectors)
    shard = ENGINE.open(unpacked(grown, tmp_path / "p"))
    np.testing.assert_array_equal(shard.vectors(np.arange(2600)), vectors)
    answers = shard.search(queries, 10, width=100)
    assert_answers_are_sound(answers, vectors, queries, 10, metric)
    assert recall(answers[1], nearest(vectors, queries, 10, metric)[1]) > 0.95


def test_inserting_is_reproducible_and_leaves_the_shard_as_it_is(tmp_path):
    vectors = normal(1200, 8)
    known = unpacked(built(vectors[:1000], tmp_path / "s"), tmp_path / "o")
    before = {path.name: path.read_bytes() for path in known.iterdir()}
    blobs = []
    for threads in (1, 3):
        out = io.BytesIO()
        ENGINE.encode(
            inserted(known, vectors[1000:], tmp_path / f"{threads}", threads=threads), out
        )
        blobs.append(out.getvalue())
    assert blobs[0] == blobs[1]
    assert before == {path.name: path.read_bytes() for path in known.iterdir()}


@pytest.mark.parametrize("share", [0.3, 0.99, 1.0])
def test_new_rows_do_not_rest_on_deleted_ones_but_those_of_upper_layers(share, tmp_path):
    vectors = normal(1500, 6)
    value = built(vectors[:1200], tmp_path / "s")
    deleted = np.random.default_rng(1).permutation(1200) < share * 1200
    grown = inserted(
        unpacked(value, tmp_path / "o"), vectors[1200:], tmp_path / "i", deleted=deleted
    )
    lonely = np.flatnonzero(deleted & (value.levels == 0))
    lonely = lonely[lonely != value.entry]
    for row in range(1200, 1500):
        assert not np.isin(grown.neighbours[row, : grown.degrees[row]], lonely).any() or share == 1
    shard = ENGINE.open(unpacked(grown, tmp_path / "p"))
    everywhere = np.concatenate([deleted, np.zeros(300, np.bool_)])
    answers = shard.search(vectors[1200:1230], 10, width=64, deleted=everywhere)
    assert_answers_are_sound(answers, vectors, vectors[1200:1230], 10, "l2", everywhere)


def test_rows_equal_to_old_and_to_new_ones_are_inserted(tmp_path):
    vectors = normal(600, 5)
    known = unpacked(built(np.concatenate([vectors, vectors[:50]]), tmp_path / "s"), tmp_path / "o")
    added = np.concatenate([np.tile(vectors[3], (200, 1)), normal(1, 5, 9), normal(1, 5, 9)])
    grown = inserted(known, added, tmp_path / "i")
    everything = np.concatenate([vectors, vectors[:50], added])
    assert len(reached(grown)) == len(everything)
    shard = ENGINE.open(unpacked(grown, tmp_path / "p"))
    answers = shard.search(vectors[:9], 30, width=64)
    assert_answers_are_sound(answers, everything, vectors[:9], 30, "l2")
    assert recall(answers[1], nearest(everything, vectors[:9], 30, "l2")[1]) > 0.9


@pytest.mark.parametrize("metric", METRIC_NAMES)
@pytest.mark.parametrize("share", [0.5, 0.02, 0.0])
def test_only_allowed_rows_that_live_are_answered(metric, share, tmp_path):
    vectors, queries = normal(2000, 8), normal(20, 8, 1)
    rng = np.random.default_rng(2)
    allowed, deleted = rng.random(2000) < share, rng.random(2000) < 0.2
    shard = opened("hnsw", vectors, tmp_path, metric=metric)
    excluded = deleted | ~allowed
    answers = shard.search(queries, 10, width=64, deleted=deleted, allowed=allowed)
    assert_answers_are_sound(answers, vectors, queries, 10, metric, excluded)
    assert recall(answers[1], nearest(vectors, queries, 10, metric, excluded)[1]) > 0.9


def test_searches_at_the_same_time_answer_as_one_after_the_other(tmp_path):
    vectors, queries = normal(3000, 16), normal(64, 16, 1)
    shard = opened("hnsw", vectors, tmp_path)
    alone = shard.search(queries, 10, width=50)
    with ThreadPoolExecutor(8) as pool:
        together = list(
            pool.map(lambda _: shard.search(queries, 10, width=50, threads=2), range(24))
        )
    for ids, distances in together:
        np.testing.assert_array_equal(ids, alone[0])
        np.testing.assert_array_equal(distances, alone[1])


def long_rows_among_short_ones():
    return normal(5000, 16) * np.exp(2 * normal(5000, 1, 1))


def one_huge_row():
    return np.concatenate([normal(3000, 16), 1e6 * normal(1, 16, 1)])


def far_clusters():
    centres = 100 * normal(40, 16)
    return (centres[:, None] + 0.1 * normal(6000, 16, 1).reshape(40, 150, 16)).reshape(-1, 16)


@pytest.mark.parametrize("kind", [long_rows_among_short_ones, one_huge_row, far_clusters])
@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_hard_data_is_answered_no_worse_than_by_hnswlib_itself(kind, metric, tmp_path):
    import hnswlib

    vectors, queries = kind().astype(np.float32), normal(50, 16, 7)
    shard = opened("hnsw", vectors, tmp_path, metric=metric)
    answers = shard.search(queries, 10, width=200)
    assert_answers_are_sound(answers, vectors, queries, 10, metric)
    index = hnswlib.Index(space=metric, dim=16)
    index.init_index(max_elements=len(vectors), M=16, ef_construction=200, random_seed=1)
    index.add_items(vectors, num_threads=1)
    index.set_ef(200)
    theirs, _ = index.knn_query(queries, 10)
    true = nearest(vectors, queries, 10, metric)[1]
    measured = METRICS[metric].pair_distances(queries, vectors, theirs.astype(np.int64))
    assert recall(answers[1], true) >= min(0.95, recall(measured, true) - 0.02)


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("added", [0, 1, 40])
def test_tiny_shards_grow(rows, added, tmp_path):
    vectors = normal(rows + added, 4)
    known = unpacked(built(vectors[:rows], tmp_path / "s"), tmp_path / "o")
    grown = inserted(known, vectors[rows:], tmp_path / "i", deleted=np.ones(rows, np.bool_))
    shard = ENGINE.open(unpacked(grown, tmp_path / "p"))
    answers = shard.search(normal(3, 4, 1), 5, width=64)
    assert_answers_are_sound(answers, vectors, normal(3, 4, 1), 5, "l2")


def test_a_batch_of_another_width_is_refused(tmp_path):
    known = unpacked(built(normal(30, 4), tmp_path / "s"), tmp_path / "o")
    with pytest.raises(BlobFormatError, match="5"):
        inserted(known, normal(3, 5), tmp_path / "i")


@pytest.mark.parametrize("scale", [1e-30, 1e18, 3e37])
def test_values_at_the_ends_of_float32(scale, tmp_path):
    vectors, queries = (normal(700, 6) * scale).astype("f4"), (normal(5, 6, 1) * scale).astype("f4")
    for metric in METRIC_NAMES:
        shard = opened("hnsw", vectors, tmp_path / metric, metric=metric)
        answers = shard.search(queries, 8, width=64)
        assert_answers_are_sound(answers, vectors, queries, 8, metric)


def corrupted_levels(value):
    levels = value.levels.copy()
    a, b = int(levels.argmax()), int(levels.argmin())
    levels[a], levels[b] = levels[b], levels[a]
    return {"levels": levels}


@pytest.mark.parametrize(
    "change",
    [
        corrupted_levels,
        lambda value: {"entry": int(value.levels.argmin())},
        lambda value: {"entry": value.rows},
        lambda value: {"neighbours": value.neighbours[:, :-1]},
        lambda value: {"neighbours": np.where(value.neighbours == 7, value.rows, value.neighbours)},
        lambda value: {"degrees": np.full_like(value.degrees, 2 * value.links + 1)},
        lambda value: {"upper_neighbours": value.upper_neighbours[:-1]},
        lambda value: {"levels": np.zeros_like(value.levels)},
        lambda value: {"vectors": value.vectors[1:]},
    ],
)
def test_arrays_that_do_not_fit_are_not_written_or_not_read(change, tmp_path):
    value = built(normal(1000, 4), tmp_path / "s")
    wrong = dataclasses.replace(value, **change(value))
    with pytest.raises(BlobFormatError):
        hnsw_blob.unpack(io.BytesIO(_written(wrong)), tmp_path)


def _written(value):
    out = io.BytesIO()
    hnsw_blob.write(value, out)
    return out.getvalue()


SPOIL = """
import io, random, sys, tempfile
from pathlib import Path
import numpy as np
from tests.support.falsified.mutation import mutate, mutate_sealed, sections_of
from puffin_ann.engines import engine
from puffin_ann.errors import PuffinAnnError

made, blob = engine("hnsw"), Path(sys.argv[1]).read_bytes()
sections, rng, opened = sections_of(blob, "hnsw"), random.Random(3), 0
for number in range(int(sys.argv[2])):
    data = mutate_sealed(sections, "hnsw", rng) if number % 4 else mutate(blob, rng)
    with tempfile.TemporaryDirectory() as folder:
        shard, scratch = Path(folder, "shard"), Path(folder, "scratch")
        shard.mkdir(), scratch.mkdir()
        try:
            made.unpack(io.BytesIO(data), shard)
        except PuffinAnnError:
            continue
        opened += 1
        searched = made.open(shard)
        queries = np.ones((2, searched.dimension), np.float32)
        searched.search(queries, 5, width=32)
        added = np.random.default_rng(number).random((9, searched.dimension), np.float32)
        made.insert(shard, added, deleted=np.arange(searched.rows) % 3 == 0,
                    parameters=made.check({}, None), norm_bound=1.0, seed=0, threads=1,
                    scratch=scratch)
print(opened)
"""


@pytest.mark.long
def test_a_corrupted_blob_never_ends_the_process(tmp_path):
    """What passes the checks is searched and handed to hnswlib, which checks nothing."""
    value = built(normal(400, 3), tmp_path / "s", M=3)
    path = tmp_path / "blob"
    path.write_bytes(_written(value))
    run = subprocess.run(
        [sys.executable, "-c", SPOIL, str(path), "800"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert int(run.stdout.split()[-1]) > 25, "some must get as far as hnswlib"


def test_random_bytes_are_refused(tmp_path):
    rng = random.Random(1)
    for length in (0, 10, 48, 1000):
        with pytest.raises(FormatError):
            hnsw_blob.unpack(io.BytesIO(rng.randbytes(length)), tmp_path)
