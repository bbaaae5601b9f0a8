"""What every engine promises of an opened shard, as checks that tests of engines share."""

import io

import numpy as np

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.engines import engine

METRIC_NAMES = sorted(METRICS)


def opened(
    algorithm, vectors, folder, *, metric="l2", threads=2, seed=0, searched=True, **parameters
):
    """Build, encode, unpack and open a shard; what a search gets to see in production."""
    made = engine(algorithm)
    scratch, shard = folder / "scratch", folder / "shard"
    scratch.mkdir(parents=True)
    shard.mkdir()
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    built = made.build(
        vectors,
        metric=metric,
        parameters=made.check(parameters, vectors.shape[1]),
        norm_bound=float(norms.max(initial=0.0)),
        seed=seed,
        threads=threads,
        scratch=scratch,
    )
    blob = io.BytesIO()
    length = made.encode(built, blob)
    assert length == len(blob.getvalue())
    blob.seek(0)
    made.unpack(blob, shard, searched=searched)
    return made.open(shard)


def nearest(vectors, queries, k, metric, deleted=None):
    """Return the true answers, from all distances."""
    distances = METRICS[metric].distances(queries, vectors)
    live = np.arange(len(vectors)) if deleted is None else np.flatnonzero(~deleted)
    ids = np.full((len(queries), k), -1, np.int64)
    found = np.full((len(queries), k), np.inf, np.float32)
    for row, line in enumerate(distances):
        best = live[np.lexsort((live, line[live]))][:k]
        ids[row, : len(best)] = best
        found[row, : len(best)] = line[best]
    return ids, found


def assert_answers_are_sound(answers, vectors, queries, k, metric, deleted=None):
    """Check shape, order, exact distances, liveness, no doubles, min(k, live) answers."""
    ids, distances = answers
    live = len(vectors) if deleted is None else int((~deleted).sum())
    assert ids.shape == distances.shape == (len(queries), k)
    assert (ids.dtype, distances.dtype) == (np.int64, np.float32)
    exact = METRICS[metric].pair_distances(queries, vectors, ids)
    np.testing.assert_array_equal(distances, exact)
    for line, along in zip(ids, distances, strict=True):
        there = line >= 0
        assert there.sum() == min(k, live)
        assert not there[min(k, live) :].any()
        assert len(set(line[there].tolist())) == there.sum()
        assert deleted is None or not deleted[line[there]].any()
        pairs = list(zip(along[there].tolist(), line[there].tolist(), strict=True))
        assert pairs == sorted(pairs)


def recall(distances, true_distances):
    """Return the share of answers that are as near as the k-th true one."""
    return float((distances <= true_distances[:, -1:]).mean())
