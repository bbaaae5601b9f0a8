"""What conditions keep of shards is one for all who ask, and takes no more than it may."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact.byte_rows import size_of_codes
from puffin_ann.ann.exact.kernels_products import HAS_DOTS
from puffin_ann.ann.signs.row_codes import RowCodes
from puffin_ann.search.conditions import kept_shards
from puffin_ann.search.conditions.kept_shards import KeptShards
from puffin_ann.search.conditions.shard_rows import ShardRows


class Shard:
    """A shard of zeros."""

    dimension, metric = 4, "l2"

    def find_vectors(self, ordinals):
        return np.zeros((len(ordinals), self.dimension), np.float32), np.arange(len(ordinals))


def some_rows(rows, every=10):
    return ShardRows.among(rows, np.arange(0, rows, every))


@pytest.fixture
def most(monkeypatch):
    """Set how many bytes may be kept."""
    return lambda size: monkeypatch.setattr(kept_shards, "SHARDS_BYTES", size)


def ids_of(kept):
    return list(kept._rows)


def test_ordinals_take_four_bytes_a_row_and_are_given_as_eight():
    rows = some_rows(1000, 4)
    assert rows.size == 4 * 250
    assert (rows.ordinals.dtype, rows.ordinals.tolist()) == (np.int64, [*range(0, 1000, 4)])
    assert rows.excluded.tolist() == [number % 4 != 0 for number in range(1000)]
    assert rows.size == 4 * 250 + 1000
    wide = ShardRows.among(2**32, np.array([2**32 - 1]))
    assert wide.ordinals.tolist() == [2**32 - 1]


def test_rows_asked_for_longest_ago_leave_when_masks_are_made(most):
    most(3000)
    kept = KeptShards()
    made = [kept.keep(number, some_rows(1000)) for number in range(5)]
    assert kept.bytes == 5 * 400
    made[0].excluded  # noqa: B018  (made here)
    assert (kept.bytes, ids_of(kept)) == (3000, [0, 1, 2, 3, 4])
    assert kept.get(0) is made[0]
    made[4].excluded  # noqa: B018
    assert (kept.bytes, ids_of(kept)) == (2800, [4, 0])
    made[1].excluded  # noqa: B018  (it left)
    assert kept.bytes == 2800


def test_copies_count(most):
    most(3000)
    kept = KeptShards()
    made = [kept.keep(number, some_rows(1000)) for number in range(3)]
    before = kept.bytes
    made[1].nearest(Shard(), np.zeros((1, 4), np.float32), 3, 1, RowCodes(METRICS["l2"]))
    numbers = size_of_codes(100, 4) if HAS_DOTS else 100 * (4 * 4 + 8)
    assert before == 3 * 400
    assert (made[1].size, ids_of(kept)) == (400 + 101 * 8 + numbers, [2])
    assert kept.bytes == 400


def test_what_is_kept_beside_takes_room(most):
    most(1000)
    kept = KeptShards()
    for number in range(2):
        kept.keep(number, some_rows(1000))
    kept.make_room(500)
    assert (kept.bytes, ids_of(kept)) == (900, [1])
    kept.make_room(100)
    kept.keep(2, some_rows(1000))
    assert (kept.bytes, ids_of(kept)) == (900, [1, 2])


def test_the_rows_of_a_shard_that_were_kept_first_stay(most):
    kept = KeptShards()
    first, second = some_rows(100), some_rows(100)
    assert kept.keep(7, first) is first
    assert kept.keep(7, second) is first
    assert kept.get(7) is first
    assert kept.bytes == first.size
    second.excluded  # noqa: B018
    assert kept.bytes == first.size


def test_a_shard_that_takes_too_much_is_kept_alone(most):
    most(10)
    kept = KeptShards()
    for number in range(3):
        rows = kept.keep(number, some_rows(1000))
        assert kept.get(number) is rows
        assert ids_of(kept) == [number]


def test_what_is_let_go_of_leaves_memory_at_once():
    gc.disable()
    try:
        kept = KeptShards()
        gone = [weakref.ref(kept), weakref.ref(kept.keep(1, some_rows(1000)))]
        del kept
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()


def test_all_threads_get_one_mask(monkeypatch):
    """Kernels know where it lies."""
    made, start = [], threading.Barrier(4)
    ones = np.ones

    def slowly(*arguments):
        time.sleep(0.05)
        return ones(*arguments)

    rows = some_rows(1000)
    monkeypatch.setattr(np, "ones", slowly)

    def ask():
        start.wait()
        made.append(rows.excluded)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(mask) for mask in made} == {id(rows.excluded)}
    assert len(made) == 4


@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["keep", "mask", "get", "beside"]), st.integers(0, 5)),
        max_size=40,
    )
)
def test_bytes_are_those_of_what_is_kept_and_within_bounds(steps):
    before, kept_shards.SHARDS_BYTES = kept_shards.SHARDS_BYTES, 2500
    try:
        kept, made, beside = KeptShards(), {}, 0
        for step, number in steps:
            if step == "keep":
                made[number] = kept.keep(number, some_rows(200 * (number + 1)))
            elif step == "mask" and number in made:
                made[number].excluded  # noqa: B018
            elif step == "get":
                assert kept.get(number) in (None, made.get(number))
            elif step == "beside":
                beside = 300 * number
                kept.make_room(beside)
            assert kept.bytes == beside + sum(rows.size for rows in kept._rows.values())
            assert kept.bytes <= 2500 or len(kept._rows) <= 1
    finally:
        kept_shards.SHARDS_BYTES = before
