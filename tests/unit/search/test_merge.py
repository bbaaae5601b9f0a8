import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.search.merge import Source, merge

K = 4


def _source(rows, rank):
    """A source of one query: rows are (distance, row group, offset), already sorted."""
    rows = sorted(rows)[:K]
    ids = np.full((1, K), -1, dtype=np.int64)
    distances = np.full((1, K), np.inf, dtype=np.float32)
    ids[0, : len(rows)] = np.arange(len(rows))
    distances[0, : len(rows)] = [row[0] for row in rows]
    groups = np.array([row[1] for row in rows], dtype=np.int64)
    offsets = np.array([row[2] for row in rows], dtype=np.int64)
    return Source(
        ids,
        distances,
        lambda chosen: (np.full(chosen.shape, rank), groups[chosen], offsets[chosen]),
    )


distances = st.sampled_from([-3e38, -1.5, -1e-45, -0.0, 0.0, 1e-45, 1.0, 3e38])
rows = st.lists(st.tuples(distances, st.integers(0, 2), st.integers(0, 9)), unique=True)


@given(st.lists(rows, min_size=1, max_size=4))
def test_merging_orders_by_distance_and_ties_by_locator(sources):
    ranks = list(reversed(range(len(sources))))  # later sources hold files that sort earlier
    merged = merge([_source(r, rank) for r, rank in zip(sources, ranks, strict=True)], K)
    expected = sorted(
        (distance, rank, group, offset)
        for source, rank in zip(sources, ranks, strict=True)
        for distance, group, offset in source
    )[:K]
    found = []
    for number, answer, distance in zip(
        merged.sources[0], merged.ordinals[0], merged.distances[0], strict=True
    ):
        if number >= 0:
            _, group, offset = sorted(sources[number])[answer]
            found.append((distance, ranks[number], group, offset))
    assert [(np.float32(first), *rest) for first, *rest in expected] == found


def test_rows_infinitely_far_away_are_answers_too():
    far, near = _source([(np.inf, 0, 0)], 0), _source([(1.0, 0, 0)], 1)
    merged = merge([far, near], K)
    assert merged.sources.tolist() == [[1, 0, -1, -1]]
    assert merge([far], K).sources.tolist() == [[0, -1, -1, -1]]
