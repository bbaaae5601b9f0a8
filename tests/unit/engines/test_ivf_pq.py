"""Inverted lists: filters, inserts, far clusters, odd numbers, and every level of instructions."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from puffin_ann.ann.simd import vectors as simd
from puffin_ann.blobs.shards import ivf as ivf_blob
from puffin_ann.engines import engine, ivf_unpacked
from puffin_ann.errors import BlobFormatError, DeclarationError, LocalCopyError
from tests.support.indexes.shard_checks import (
    METRIC_NAMES,
    assert_answers_are_sound,
    nearest,
    opened,
    recall,
)

ENGINE = engine("ivf_pq")


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def encoded(vectors, folder, *, metric="l2", threads=1, **parameters):
    built = ENGINE.build(
        vectors,
        metric=metric,
        parameters=ENGINE.check(parameters, vectors.shape[1]),
        norm_bound=0.0,
        seed=3,
        threads=threads,
        scratch=folder,
    )
    out = io.BytesIO()
    ENGINE.encode(built, out)
    return out.getvalue()


def unpacked(blob, folder):
    folder.mkdir()
    ENGINE.unpack(io.BytesIO(blob), folder)
    return folder


def inserted(folder, added, scratch, threads=1):
    scratch.mkdir()
    built = ENGINE.insert(
        folder,
        added,
        parameters=ENGINE.check({}, added.shape[1]),
        norm_bound=0.0,
        seed=3,
        threads=threads,
        scratch=scratch,
    )
    out = io.BytesIO()
    ENGINE.encode(built, out)
    return out.getvalue()


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_the_same_seed_gives_the_same_bytes_whatever_the_threads(metric, tmp_path):
    vectors = normal(3000, 20)
    assert encoded(vectors, tmp_path, metric=metric) == encoded(
        vectors, tmp_path, metric=metric, threads=3
    )


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_codes_of_the_blob_stand_for_the_rows(metric, tmp_path):
    vectors = normal(2000, 10)
    folder = unpacked(encoded(vectors, tmp_path, metric=metric, pq_m=7), tmp_path / "shard")
    ivf = ivf_blob.open(folder)
    if metric == "l2":
        space = vectors - ivf.origin
    elif metric == "cosine":
        space = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    else:
        space = vectors * np.float32(ivf.scale)
    lists = np.repeat(np.arange(len(ivf.centroids)), np.diff(ivf.starts))
    codes = np.stack([ivf.codes & 15, ivf.codes >> 4], axis=2).reshape(2000, -1)[:, :7]
    found = ivf.centroids[lists][:, :10].copy()
    for j, (first, last) in enumerate(
        zip(ivf.subspace_offsets, ivf.subspace_offsets[1:], strict=False)
    ):
        found[:, first:last] += ivf.codebook[j, codes[:, j], : last - first]
    error = np.square(found - space[ivf.ordinals]).sum() / np.square(space).sum()
    assert error < 0.12
    assert ivf.codes.shape == (2000, 4)
    assert not (ivf.codes[:, 3] >> 4).any()


@pytest.mark.parametrize("metric", METRIC_NAMES)
@pytest.mark.parametrize("kind", ["few", "far away", "half"])
def test_a_filter_never_leaves_a_search_short(metric, kind, tmp_path):
    vectors, queries = normal(4000, 8), normal(6, 8, seed=1)
    shard = opened("ivf_pq", vectors, tmp_path, metric=metric)
    near, _ = nearest(vectors, queries[:1], 4000, metric)
    allowed = np.zeros(4000, np.bool_)
    chosen = {"few": near[0, 5:4000:400], "far away": near[0, -60:], "half": near[0, ::2]}[kind]
    allowed[chosen] = True
    deleted = np.zeros(4000, np.bool_)
    deleted[chosen[::3]] = True
    excluded = deleted | ~allowed
    answers = shard.search(queries, 12, width=24, deleted=deleted, allowed=allowed)
    assert_answers_are_sound(answers, vectors, queries, 12, metric, excluded)
    assert recall(answers[1], nearest(vectors, queries, 12, metric, excluded)[1]) > 0.75


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_inserted_rows_are_found_and_the_others_keep_their_ordinals(metric, tmp_path):
    vectors, more = normal(3000, 12), np.float32(1.1) * normal(400, 12, seed=1)
    folder = unpacked(encoded(vectors, tmp_path, metric=metric), tmp_path / "shard")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    one = inserted(folder, more, tmp_path / "one")
    assert one == inserted(folder, more, tmp_path / "two", threads=3)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    shard = ENGINE.open(unpacked(one, tmp_path / "after"))
    everything = np.concatenate([vectors, more])
    np.testing.assert_array_equal(shard.vectors(np.arange(3400)), everything)
    queries = normal(50, 12, seed=2)
    answers = shard.search(queries, 10, width=60)
    assert_answers_are_sound(answers, everything, queries, 10, metric)
    assert recall(answers[1], nearest(everything, queries, 10, metric)[1]) > 0.9
    if metric != "ip":
        assert (shard.search(more, 1, width=30)[0][:, 0] >= 3000).mean() > 0.99


def test_an_insert_trains_nothing_and_old_rows_keep_their_lists_and_codes(tmp_path, monkeypatch):
    folder = unpacked(encoded(normal(2000, 10), tmp_path), tmp_path / "shard")
    before = ivf_blob.open(folder)
    for module in ("kmeans", "product_quantisation"):
        monkeypatch.setattr(f"puffin_ann.ann.clustering.{module}.train", None)
    more = 3 + normal(300, 10, seed=1)
    after = ivf_blob.open(unpacked(inserted(folder, more, tmp_path / "more"), tmp_path / "after"))
    for name in ("origin", "centroids", "codebook", "subspace_offsets"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    old = after.ordinals < 2000
    np.testing.assert_array_equal(after.ordinals[old], before.ordinals)
    np.testing.assert_array_equal(after.codes[old], before.codes)
    np.testing.assert_array_equal(after.biases[old], before.biases)


def test_a_shard_too_small_for_lists_gets_them_as_it_grows(tmp_path):
    folder = unpacked(encoded(normal(3, 6), tmp_path), tmp_path / "shard")
    assert not ivf_blob.open(folder).has_lists
    grown = unpacked(inserted(folder, normal(900, 6, seed=1), tmp_path / "more"), tmp_path / "big")
    assert ivf_blob.open(grown).has_lists
    assert ENGINE.open(grown).rows == 903


def test_rows_of_another_width_are_not_inserted(tmp_path):
    folder = unpacked(encoded(normal(300, 6), tmp_path), tmp_path / "shard")
    with pytest.raises(BlobFormatError, match="dimensions"):
        inserted(folder, normal(2, 5), tmp_path / "more")


@pytest.mark.parametrize("metric", METRIC_NAMES)
@pytest.mark.parametrize("factor", [1e-30, 1e-12, 1e12, 1e30])
def test_numbers_of_any_size(metric, factor, tmp_path):
    vectors, queries = normal(600, 6) * np.float32(factor), normal(5, 6, seed=1)
    queries = queries * np.float32(factor)
    shard = opened("ivf_pq", vectors, tmp_path, metric=metric)
    answers = shard.search(queries, 9, width=40)
    assert_answers_are_sound(answers, vectors, queries, 9, metric)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_queries_far_beyond_the_rows(metric, tmp_path):
    vectors = normal(900, 6)
    queries = np.array([[1e30] * 6, [1e19, 0, 0, 0, 0, -1e19]], np.float32)
    shard = opened("ivf_pq", vectors, tmp_path, metric=metric)
    answers = shard.search(queries, 9, width=40)
    assert_answers_are_sound(answers, vectors, queries, 9, metric)


def test_rows_far_from_the_origin(tmp_path):
    vectors, queries = 1e4 + normal(3000, 16), 1e4 + normal(40, 16, seed=1)
    shard = opened("ivf_pq", vectors.astype(np.float32), tmp_path)
    answers = shard.search(queries.astype(np.float32), 10, width=80)
    expected = nearest(vectors.astype(np.float32), queries.astype(np.float32), 10, "l2")[1]
    assert recall(answers[1], expected) > 0.95


def test_effort_never_falls_as_width_grows_and_reaches_every_row(tmp_path):
    shard = opened("ivf_pq", normal(2000, 8), tmp_path)
    efforts = [shard.effort(10, width) for width in (1, 2, 10, 50, 100, 500, 2000, 10**6)]
    assert efforts == sorted(efforts)
    assert [refined for _, refined in efforts] == sorted(refined for _, refined in efforts)
    lists, refined = efforts[-1]
    assert refined == 2000
    assert lists == shard.effort(10, 10**7)[0]


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_the_greatest_width_is_brute_force(metric, tmp_path):
    vectors, queries = np.round(normal(1500, 3), 1), normal(20, 3, seed=1)
    shard = opened("ivf_pq", vectors, tmp_path, metric=metric)
    distances = shard.search(queries, 15, width=10**6)[1]
    np.testing.assert_array_equal(distances, nearest(vectors, queries, 15, metric)[1])


def test_parameters_change_lists_and_codes(tmp_path):
    blob = encoded(normal(1000, 12), tmp_path, lists=5, pq_m=3)
    ivf = ivf_blob.open(unpacked(blob, tmp_path / "shard"))
    assert len(ivf.centroids) == 5
    assert len(ivf.codebook) == 3
    assert ENGINE.open(tmp_path / "shard").search(normal(2, 12), 4, width=9)[0].shape == (2, 4)


@pytest.mark.parametrize("wrong", [{"pq_m": 13}, {"lists": 0}, {"pq_nbits": 8}])
def test_parameters_that_cannot_be_are_refused_by_name(wrong):
    with pytest.raises(DeclarationError, match=next(iter(wrong))):
        ENGINE.check(wrong, 12)


def test_a_folder_that_is_not_whole_is_refused(tmp_path):
    folder = unpacked(encoded(normal(400, 6), tmp_path, metric="cosine"), tmp_path / "shard")
    (folder / "inverse-norms.npy").unlink()
    with pytest.raises(LocalCopyError, match="not a whole"):
        ENGINE.open(folder)
    (folder / "shard.json").unlink()
    with pytest.raises(LocalCopyError, match="not a whole"):
        ENGINE.open(folder)


ELSEWHERE = """
import sys, numpy as np
from pathlib import Path
from puffin_ann.ann.simd import vectors as simd
from puffin_ann.engines import engine
assert simd.LEVEL == sys.argv[2], simd.LEVEL
shard = engine("ivf_pq").open(Path(sys.argv[1]))
queries = np.random.default_rng(9).standard_normal((30, shard.dimension)).astype(np.float32)
ids, distances = shard.search(queries, 10, width=20)
np.savez(sys.argv[3], ids=ids, distances=distances)
"""


@pytest.mark.parametrize("dimension", [18, 270])
@pytest.mark.parametrize("level", ["avx2", pytest.param("portable", marks=pytest.mark.long)])
def test_every_level_of_vector_instructions_gives_the_same_answers(level, dimension, tmp_path):
    if level == "avx2" and simd.LEVEL == "portable":
        level = "portable"  # this machine has no other
    folder = unpacked(encoded(normal(3000, dimension), tmp_path), tmp_path / "shard")
    queries = np.random.default_rng(9).standard_normal((30, dimension)).astype(np.float32)
    ids, distances = ENGINE.open(folder).search(queries, 10, width=20)
    subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(folder), level, str(tmp_path / "got.npz")],
        env={**os.environ, "PUFFIN_ANN_SIMD": level},
        check=True,
    )
    got = np.load(tmp_path / "got.npz")
    np.testing.assert_array_equal(got["ids"], ids)
    np.testing.assert_array_equal(got["distances"], distances)


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_a_folder_of_a_former_version_is_searched_without_what_it_lacks(metric, tmp_path):
    vectors, queries = normal(2000, 256), normal(40, 256, seed=4)
    folder = unpacked(encoded(vectors, tmp_path, metric=metric), tmp_path / "shard")
    before = ENGINE.open(folder).search(queries, 5, width=20)
    for file in ("reach-1.npy", "coded-rows-1.npy"):
        (folder / file).unlink()
    after = ENGINE.open(folder).search(queries, 5, width=20)
    for answers in (before, after):
        assert_answers_are_sound(answers, vectors, queries, 5, metric)
    expected = nearest(vectors, queries, 5, metric)[1]
    assert recall(before[1], expected) >= recall(after[1], expected) - 0.02


@pytest.mark.parametrize("wrong", ["rows", "type", "order", "axes"])
@pytest.mark.parametrize(
    "file", ["reach-1.npy", "coded-rows-1.npy", "inverse-norms.npy", ivf_unpacked.PACKED]
)
def test_what_belongs_to_another_shard_is_refused(file, wrong, tmp_path):
    folder = unpacked(encoded(normal(600, 256), tmp_path, metric="cosine"), tmp_path / "shard")
    right = np.load(folder / file)
    other = {
        "rows": right[:-1],
        "type": right.astype(np.float64 if right.dtype == np.float32 else np.int8),
        "order": np.asfortranarray(right),
        "axes": right[None],
    }[wrong]
    np.save(folder / file, other)
    if wrong == "order" and right.ndim == 1:  # it has only one
        ENGINE.open(folder)
        return
    with pytest.raises(LocalCopyError, match="not a whole"):
        ENGINE.open(folder)


def test_what_is_only_added_to_has_nothing_made_for_searches(tmp_path):
    blob = encoded(normal(600, 256), tmp_path)
    (tmp_path / "read").mkdir()
    ENGINE.unpack(io.BytesIO(blob), tmp_path / "read", searched=False)
    assert not list((tmp_path / "read").glob("coded-rows-*"))
    assert ENGINE.open(tmp_path / "read").search(normal(2, 256), 4, width=9)[0].shape == (2, 4)


def test_codes_packed_by_another_kind_of_machine_are_packed_anew(tmp_path):
    folder = unpacked(encoded(normal(2000, 9), tmp_path), tmp_path / "shard")
    queries = normal(10, 9, seed=4)
    before = ENGINE.open(folder).search(queries, 5, width=20)
    (packed,) = Path(folder).glob("packed-*.npy")
    packed.rename(folder / "packed-otherwise.npy")
    after = ENGINE.open(folder).search(queries, 5, width=20)
    np.testing.assert_array_equal(before[0], after[0])


@pytest.mark.parametrize("metric", METRIC_NAMES)
@pytest.mark.parametrize("number", [1e-45, 1e-41, 1e-38, 1e18, 1e30, 3.4e38])
def test_queries_whose_products_no_float32_holds_are_answered(tmp_path, metric, number):
    vectors = normal(2000, 16)
    shard = opened("ivf_pq", vectors, tmp_path, metric=metric)
    queries = np.full((3, 16), number, np.float32)
    queries[1] = np.sign(vectors[0]) * np.float32(number)
    queries[2, 1:] = 0
    answers = shard.search(queries, 10, width=20)
    assert (answers[0] >= 0).all()
    assert_answers_are_sound(answers, vectors, queries, 10, metric)


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_lists_are_built_over_rows_of_next_to_no_length(tmp_path, metric):
    vectors = normal(2000, 16)
    vectors[::50] *= np.float32(1e-41)
    shard = opened("ivf_pq", vectors, tmp_path, metric=metric)
    queries = np.concatenate([vectors[:51:50], vectors[1:9]])
    answers = shard.search(queries, 10, width=20)
    assert (answers[0] >= 0).all()
    assert_answers_are_sound(answers, vectors, queries, 10, metric)
