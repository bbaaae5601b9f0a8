"""Rows of several shards, compared in one go."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.search.conditions.gathered import Gathered, Part
from puffin_ann.search.merge import in_shards, keys_of, merge

places = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 9)), unique=True, max_size=40
)


@given(places, st.sampled_from([1, 2**31]), st.integers(1, 12), st.randoms(use_true_random=False))
def test_rows_of_all_shards_are_ordered_by_distance_and_locator(rows, apart, k, random):
    """Few values, so that many are as far; in shards whose rows are in no order.

    Keys that are far `apart` make no one number of 64 bits.
    """
    rows = [tuple(number * apart for number in row) for row in rows]
    shard_of = [random.choice([7, 3, 5]) for _ in rows]
    vectors = np.array([[random.choice([0, 1, 2]), random.choice([0, 1])] for _ in rows])
    vectors = vectors.reshape(-1, 2).astype(np.float32)
    parts, numbers = [], {}
    for shard_id in (7, 3, 5):
        mine = [number for number, of in enumerate(shard_of) if of == shard_id]
        numbers[shard_id] = mine
        locators = np.array([rows[number] for number in mine], np.int64).reshape(-1, 3)
        ordinals = np.arange(len(mine))
        held = vectors[mine], ordinals
        parts.append(Part(shard_id, "l2", ordinals, held, lambda some, held=locators: held[some].T))
    query = np.array([[0.5, 0.25]], np.float32)
    source = Gathered.of(parts).nearest(query, k, 1)
    merged = merge([source], k)
    there = merged.sources[0] >= 0
    origin, ordinals = merged.sources[0][there], merged.ordinals[0][there]
    found = list(map(tuple, keys_of([source], origin, ordinals).T.tolist()))
    distances = np.sqrt(((vectors - query) ** 2).sum(axis=1))
    expected = sorted(zip(distances.tolist(), rows, strict=True))[:k]
    assert found == [row for _, row in expected]
    shards, in_them = in_shards([source], origin, ordinals)
    told = [rows[numbers[shard][at]] for shard, at in zip(shards, in_them, strict=True)]
    assert told == found
