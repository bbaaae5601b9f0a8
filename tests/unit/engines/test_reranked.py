"""Shards with rounded vectors, or none: answers are those of the table's vectors, in every form."""

import io

import numpy as np
import pytest

from puffin_ann.ann.exact import brute_force
from puffin_ann.blobs.encoding import stored_vectors
from puffin_ann.blobs.encoding.stored_vectors import Stored
from puffin_ann.declaration import AUTO, FORMS_OF
from puffin_ann.engines import engine
from puffin_ann.engines.reranked import ArrayRows, CodesReranked, reranked
from puffin_ann.errors import BadVectorsError

METRICS = ("l2", "cosine", "ip")
STORED = [
    (algorithm, form)
    for algorithm, forms in FORMS_OF.items()
    for form in forms
    if algorithm != AUTO and form != "float32"
]


class Counted(ArrayRows):
    """The table's vectors, and how many of them were asked for."""

    asked = 0

    def read(self, ordinals):
        self.asked += len(ordinals)
        return super().read(ordinals)


def rows(count=900, dimension=12, seed=0):
    """Rows; of many, some are equal, one is zero and one is longer than the others."""
    found = np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)
    if count >= 200:
        found[100:110] = found[100]
        found[7], found[8] = 0, 50
    return found


def written(algorithm, form, vectors, metric, folder):
    """The blob of a shard."""
    made = engine(algorithm)
    (folder / "build").mkdir(parents=True)
    built = made.build(
        vectors,
        metric=metric,
        parameters=made.check({}, vectors.shape[1]),
        norm_bound=float(np.linalg.norm(vectors, axis=1).max(initial=0)),
        seed=1,
        threads=1,
        scratch=folder / "build",
    )
    out = io.BytesIO()
    made.encode(built, out, Stored(form))
    return out.getvalue()


def opened(algorithm, blob, folder, table):
    folder.mkdir(parents=True)
    made = engine(algorithm)
    made.unpack(io.BytesIO(blob), folder)
    errors = stored_vectors.known(folder).errors
    return reranked(made.open(folder), errors, lambda: table)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("algorithm", "form"), STORED)
def test_answers_are_exact_whatever_is_stored(algorithm, form, metric, tmp_path):
    vectors, queries = rows(), rows(12, seed=1)
    table = Counted(vectors, 0, len(vectors))
    blob = written(algorithm, form, vectors, metric, tmp_path)
    shard = opened(algorithm, blob, tmp_path / "unpacked", table)
    rng = np.random.default_rng(2)
    for deleted in (None, rng.random(len(vectors)) < 0.5, rng.random(len(vectors)) < 0.985):
        allowed = None if deleted is None else ~deleted
        for k in (1, 10, 40):
            truth = brute_force.search(queries, vectors, k, metric, allowed=allowed)
            found = shard.exhaustive(queries, k, deleted=deleted)
            np.testing.assert_array_equal(found[0], truth[0])
            np.testing.assert_array_equal(found[1], truth[1])
            ids, near = shard.search(queries, k, width=64, deleted=deleted)
            assert ((ids >= 0).sum(axis=1) == (truth[0] >= 0).sum(axis=1)).all()
            assert deleted is None or not deleted[ids[ids >= 0]].any()
            every = brute_force.search(queries, vectors, len(vectors), metric)
            for line, (row, distance) in enumerate(zip(ids, near, strict=True)):
                known = dict(zip(every[0][line].tolist(), every[1][line].tolist(), strict=True))
                there = row >= 0
                assert [known[r] for r in row[there].tolist()] == distance[there].tolist()
                assert (np.diff(distance[there]) >= 0).all()
            if deleted is None:
                assert (near <= truth[1][:, -1:]).mean() > 0.9


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("algorithm", "form"), STORED)
def test_no_row_nearer_than_a_distance_is_ruled_out(algorithm, form, metric, tmp_path):
    vectors, queries = rows(), rows(5, seed=3)
    table = Counted(vectors, 0, len(vectors))
    blob = written(algorithm, form, vectors, metric, tmp_path)
    shard = opened(algorithm, blob, tmp_path / "unpacked", table)
    truth = brute_force.search(queries, vectors, len(vectors), metric)
    for share in (0, 0.01, 0.3, 1):
        limit = float(np.quantile(truth[1], share))
        near = {*truth[0][truth[1] < limit].tolist()}
        kept = shard.maybe_nearer(queries, limit, np.arange(len(vectors)))
        assert near <= {*kept.tolist()}


@pytest.mark.parametrize("form", ["float16", "int8"])
def test_few_rounded_rows_are_looked_up(form, tmp_path):
    vectors, queries = rows(3000, 24), rows(20, 24, seed=1)
    table = Counted(vectors, 0, len(vectors))
    shard = opened(
        "exact", written("exact", form, vectors, "l2", tmp_path), tmp_path / "unpacked", table
    )
    shard.exhaustive(queries, 10)
    assert table.asked < 2.5 * 10 * len(queries)


def test_rows_that_halves_hold_are_not_looked_up(tmp_path):
    vectors = np.round(rows(500) * 4) / 4
    table = Counted(vectors, 0, len(vectors))
    blob = written("exact", "float16", vectors, "cosine", tmp_path)
    shard = opened("exact", blob, tmp_path / "unpacked", table)
    shard.exhaustive(vectors[:5], 10)
    assert table.asked == 0


@pytest.mark.parametrize(("algorithm", "form"), STORED)
def test_inserted_rows_leave_the_errors_of_others_as_they_are(algorithm, form, tmp_path):
    vectors, more = rows(), rows(90, seed=4)
    made = engine(algorithm)
    blob = written(algorithm, form, vectors, "l2", tmp_path)
    folder = tmp_path / "unpacked"
    opened(algorithm, blob, folder, Counted(vectors, 0, len(vectors)))
    (tmp_path / "insert").mkdir()
    built = made.insert(
        folder,
        more,
        parameters=made.check({}, 12),
        norm_bound=0.0,
        seed=1,
        threads=1,
        scratch=tmp_path / "insert",
    )
    out = io.BytesIO()
    made.encode(built, out, stored_vectors.known(folder, form))
    every = np.concatenate([vectors, more])
    table = Counted(every, 0, len(every))
    shard = opened(algorithm, out.getvalue(), tmp_path / "after", table)
    before, after = (stored_vectors.known(tmp_path / name) for name in ("unpacked", "after"))
    if form != "none":
        np.testing.assert_array_equal(after.errors[: len(vectors)], before.errors)
    queries = rows(10, seed=5)
    truth = brute_force.search(queries, every, 10, "l2")
    np.testing.assert_array_equal(shard.exhaustive(queries, 10)[0], truth[0])
    assert (shard.search(queries, 10, width=64)[1] <= truth[1][:, -1:]).mean() > 0.9


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e15])
def test_queries_and_rows_of_any_size_without_vectors(scale, tmp_path):
    vectors, queries = rows() * np.float32(scale), rows(5, seed=1) * np.float32(scale)
    blob = written("ivf_pq", "none", vectors, "l2", tmp_path)
    shard = opened("ivf_pq", blob, tmp_path / "unpacked", Counted(vectors, 0, len(vectors)))
    truth = brute_force.search(queries, vectors, 10, "l2")
    np.testing.assert_array_equal(shard.exhaustive(queries, 10)[0], truth[0])
    far = shard.search(np.full((1, 12), 1e30, np.float32), 10, width=32)
    assert (far[0] >= 0).all()


def test_a_shard_too_small_for_lists_keeps_its_vectors(tmp_path):
    vectors = rows(200)
    blob = written("ivf_pq", "none", vectors, "l2", tmp_path)
    shard = opened("ivf_pq", blob, tmp_path / "unpacked", Counted(vectors, 0, 200))
    assert not isinstance(shard, CodesReranked)
    np.testing.assert_array_equal(shard.vectors(np.arange(200)), vectors)


def test_a_shard_without_vectors_is_small(tmp_path):
    vectors = np.random.default_rng(0).standard_normal((4000, 768)).astype(np.float32)
    size = len(written("ivf_pq", "none", vectors, "cosine", tmp_path))
    centroids = 4 * 768 * round(1.1 * 4000**0.5)
    codebook = 4 * 384 * 16 * 2
    assert (size - centroids - codebook) / 4000 < 205  # and 20 of the rows blob


def test_numbers_beyond_halves_are_refused_by_name(tmp_path):
    vectors = rows(300)
    vectors[17, 3] = 1e5
    with pytest.raises(BadVectorsError, match=r"float16: row 17 .* 100000, beyond 65504"):
        written("exact", "float16", vectors, "l2", tmp_path)
