"""Which rows reappear: the vectorised match against one row at a time."""

from collections import Counter, defaultdict, deque

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.lake.read.identity.row_identity import hash_rows, match_identities

FEW = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30)
EDGES = st.lists(
    st.tuples(st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1)), max_size=20
)


def identities(pairs) -> np.ndarray:
    return np.array(pairs, dtype=np.uint64).reshape(-1, 2)


def one_at_a_time(removed, added) -> list[int]:
    free = defaultdict(deque)
    for place, identity in enumerate(added):
        free[identity].append(place)
    return [free[row].popleft() if free[row] else -1 for row in removed]


@given(FEW | EDGES, FEW | EDGES)
def test_rows_are_paired_as_one_would_pair_them_one_at_a_time(removed, added):
    places = match_identities(identities(removed), identities(added))
    assert places.tolist() == one_at_a_time(removed, added)


@given(FEW, FEW)
def test_as_many_are_paired_as_the_multisets_have_in_common(removed, added):
    places = match_identities(identities(removed), identities(added))
    common = Counter(removed) & Counter(added)
    assert (places >= 0).sum() == common.total()
    taken = places[places >= 0].tolist()
    assert len(set(taken)) == len(taken)


ROW = st.tuples(st.integers(0, 3), st.integers(0, 5))  # which vector, which key


@given(st.lists(ROW, max_size=20), st.data())
def test_rows_moved_and_deleted_in_one_rewrite(rows, data):
    """A rewrite moves some rows, deletes some and adds some; the rest stay where they are."""
    fates = data.draw(
        st.lists(st.sampled_from(["stay", "move", "delete"]), min_size=len(rows), max_size=20)
        if rows
        else st.just([])
    )[: len(rows)]
    added = data.draw(st.lists(ROW, max_size=8))
    removed = [row for row, fate in zip(rows, fates, strict=True) if fate != "stay"]
    moved = [row for row, fate in zip(rows, fates, strict=True) if fate == "move"]
    added = data.draw(st.permutations(moved + added))

    places = match_identities(hashed(removed), hashed(added))

    assert (places >= 0).sum() == (Counter(removed) & Counter(added)).total()
    for row, place in zip(removed, places.tolist(), strict=True):
        assert place < 0 or added[place] == row, "paired with another row"


def hashed(rows) -> np.ndarray:
    import pyarrow as pa

    vectors = np.array([[vector, 1.5, -vector] for vector, _ in rows], dtype=np.float32)
    keys = pa.array([f"k{key}" for _, key in rows], pa.string())
    return hash_rows(vectors.reshape(-1, 3), keys)


CHANGES = st.lists(
    st.tuples(st.sampled_from(["update", "rewrite", "delete"]), st.integers(0, 9)), max_size=12
)


@given(CHANGES, st.data())
def test_an_update_that_was_rolled_back_is_not_taken_for_the_same_row(changes, data):
    """Version 3: one row id with an older update of it is another value, whatever state is shown.

    The oracle keeps (row id, last updated, value) per row and state; a rewrite changes none.
    """
    states = [{number: (number, 1, f"v{number}") for number in range(5)}]
    for sequence, (change, row) in enumerate(changes, start=2):
        rows = dict(states[-1])
        if change == "delete":
            rows.pop(row, None)
        elif change == "update" and row in rows:
            rows[row] = (row, sequence, f"{row} at {sequence}")
        states.append(rows)
    indexed = data.draw(st.sampled_from(states))
    shown = data.draw(st.sampled_from(states))  # as it may be after a rollback to any state
    removed, added = list(indexed.values()), list(shown.values())
    places = match_identities(
        identities([row[:2] for row in removed]), identities([row[:2] for row in added])
    )
    for (_, _, value), place in zip(removed, places.tolist(), strict=True):
        if place >= 0:
            assert added[place][2] == value
        else:
            assert value not in {other for _, _, other in added}


def test_a_million_rows():
    rng = np.random.default_rng(0)
    removed = rng.integers(0, 2**63, (1_000_000, 2), dtype=np.uint64)
    added = rng.permutation(removed)
    places = match_identities(removed, added)
    assert (added[places] == removed).all()


def test_nothing_gone_and_nothing_come():
    none = np.zeros((0, 2), dtype=np.uint64)
    some = identities([(1, 2)])
    assert match_identities(none, some).tolist() == []
    assert match_identities(some, none).tolist() == [-1]
    assert match_identities(none, none).tolist() == []
