"""Which rows reappear: the vectorised match against one row at a time."""

from collections import Counter, defaultdict, deque

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.lake.read.row_identity import hash_rows, matched

FEW = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30)
EDGES = st.lists(
    st.tuples(st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1)), max_size=20
)


def identities(pairs) -> np.ndarray:
    return np.array(pairs, dtype=np.uint64).reshape(-1, 2)


def one_at_a_time(gone, come) -> list[int]:
    free = defaultdict(deque)
    for place, identity in enumerate(come):
        free[identity].append(place)
    return [free[one].popleft() if free[one] else -1 for one in gone]


@given(FEW | EDGES, FEW | EDGES)
def test_rows_are_paired_as_one_would_pair_them_one_at_a_time(gone, come):
    places = matched(identities(gone), identities(come))
    assert places.tolist() == one_at_a_time(gone, come)


@given(FEW, FEW)
def test_as_many_are_paired_as_the_multisets_have_in_common(gone, come):
    places = matched(identities(gone), identities(come))
    common = Counter(gone) & Counter(come)
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
    gone = [row for row, fate in zip(rows, fates, strict=True) if fate != "stay"]
    moved = [row for row, fate in zip(rows, fates, strict=True) if fate == "move"]
    come = data.draw(st.permutations(moved + added))

    places = matched(hashed(gone), hashed(come))

    assert (places >= 0).sum() == (Counter(gone) & Counter(come)).total()
    for row, place in zip(gone, places.tolist(), strict=True):
        assert place < 0 or come[place] == row, "paired with another row"


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
    gone, come = list(indexed.values()), list(shown.values())
    places = matched(identities([one[:2] for one in gone]), identities([one[:2] for one in come]))
    for (_, _, value), place in zip(gone, places.tolist(), strict=True):
        if place >= 0:
            assert come[place][2] == value
        else:
            assert value not in {other for _, _, other in come}


def test_a_million_rows():
    rng = np.random.default_rng(0)
    gone = rng.integers(0, 2**63, (1_000_000, 2), dtype=np.uint64)
    come = rng.permutation(gone)
    places = matched(gone, come)
    assert (come[places] == gone).all()


def test_nothing_gone_and_nothing_come():
    none = np.zeros((0, 2), dtype=np.uint64)
    some = identities([(1, 2)])
    assert matched(none, some).tolist() == []
    assert matched(some, none).tolist() == [-1]
    assert matched(none, none).tolist() == []
