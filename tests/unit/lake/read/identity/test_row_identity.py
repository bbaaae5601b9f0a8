import datetime
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffin_ann.errors import UnsupportedColumnError
from puffin_ann.lake.read.identity import row_identity
from puffin_ann.lake.read.identity.row_identity import hash_rows

MASK = (1 << 64) - 1


def multiplier(part: int, lane: int, i: int) -> int:
    state = (0x7075666660616E6E + ((part * 4 + lane) << 56) + i) & MASK
    state = (state + 1) * 0x9E3779B97F4A7C15 & MASK
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK
    state = (state ^ state >> 27) * 0x94D049BB133111EB & MASK
    return state ^ state >> 31


def reference(vector: list[float], key: bytes | str | None = "none declared") -> tuple[int, int]:
    """The function as its description says, word by word."""
    words = [
        len(vector),
        *struct.unpack(f"<{len(vector)}I", struct.pack(f"<{len(vector)}f", *vector)),
    ]
    lanes = []
    for lane in range(4):
        total = multiplier(0, lane, 0)
        total += sum(multiplier(0, lane, i + 1) * word for i, word in enumerate(words))
        if key is None or isinstance(key, bytes):
            key_words = [0, 0] if key is None else [1, len(key), *key]
            total += sum(multiplier(1, lane, i) * word for i, word in enumerate(key_words))
        lanes.append((total & MASK) >> 32)
    return lanes[0] << 32 | lanes[1], lanes[2] << 32 | lanes[3]


def hashes(matrix: list[list[float]], keys: pa.Array | None = None) -> list[tuple[int, int]]:
    found = hash_rows(np.array(matrix, dtype=np.float32), keys)
    assert found.dtype == np.uint64
    return [tuple(row) for row in found.tolist()]


VECTORS = st.integers(1, 5).flatmap(
    lambda d: st.lists(
        st.lists(st.floats(width=32), min_size=d, max_size=d), min_size=1, max_size=8
    )
)


@given(VECTORS)
def test_the_hash_is_the_one_described(vectors: list[list[float]]) -> None:
    assert hashes(vectors) == [reference(vector) for vector in vectors]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=12)), min_size=1, max_size=12), st.data())
def test_keys_are_hashed_as_described_wherever_the_blocks_end(keys, data) -> None:
    block = row_identity._BLOCK_BYTES
    row_identity._BLOCK_BYTES = data.draw(st.sampled_from([8, 64, block]))
    try:
        array = pa.array([b"before", *keys], pa.binary()).slice(1)
        found = hashes([[1.5, 2.5]] * len(keys), array)
    finally:
        row_identity._BLOCK_BYTES = block
    assert found == [reference([1.5, 2.5], key) for key in keys]


def test_every_bit_of_the_vector_counts() -> None:
    vector = np.array([[1.0, 2.0, 3.0]], dtype=np.float32)
    seen = {tuple(hash_rows(vector)[0])}
    for bit in range(96):
        changed = vector.copy().view(np.uint32)
        changed[0, bit // 32] ^= np.uint32(1 << bit % 32)
        seen.add(tuple(hash_rows(changed.view(np.float32))[0]))
    assert len(seen) == 97


def test_equal_rows_are_equal_and_others_are_not() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.integers(0, 3, (5000, 8)).astype(np.float32)
    found = hash_rows(matrix)
    assert len(np.unique(found, axis=0)) == len(np.unique(matrix, axis=0))


def test_order_and_place_count() -> None:
    assert len(set(hashes([[1.0, 2.0], [2.0, 1.0], [0.0, 1.0], [1.0, 0.0]]))) == 4
    assert hashes([[0.0]]) != hashes([[0.0, 0.0]])
    assert len(set(hashes([[1.0]] * 4, pa.array(["", None, "a", "aa"])))) == 4


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.array([1, None, -3], pa.int32()), pa.array([1, None, -3], pa.int64())),
        (pa.array([0.5, None, 2], pa.float32()), pa.array([0.5, None, 2], pa.float64())),
        (pa.array(["a", None, "é"], pa.string()), pa.array(["a", None, "é"], pa.large_string())),
        (pa.array(["a", None, "b"]), pa.array(["a", None, "b"]).dictionary_encode()),
        (
            pa.array([Decimal("1.50"), None, Decimal("2.00")], pa.decimal128(5, 2)),
            pa.array([Decimal("1.50"), None, Decimal("2.00")], pa.decimal128(9, 2)),
        ),
        (pa.array([b"x", None, b"y"]), pa.chunked_array([[b"x"], [None, b"y"]])),
    ],
)
def test_the_width_of_the_key_type_does_not_count(narrow: pa.Array, wide: pa.Array) -> None:
    matrix = [[1.0]] * 3
    assert hashes(matrix, narrow) == hashes(matrix, wide)
    assert len(set(hashes(matrix, narrow))) == 3


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([True, False]),
        pa.array([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]),
        pa.array([datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2)]),
        pa.array([datetime.time(1), datetime.time(2)]),
        pa.array([datetime.time(1), datetime.time(2)], pa.time32("s")),
        pa.array([b"0" * 16, b"1" * 16], pa.binary(16)),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, b"1" * 16], pa.binary(16))),
    ],
)
def test_any_flat_type_can_be_a_key(keys: pa.Array) -> None:
    assert len(set(hashes([[1.0]] * 2, keys))) == 2


def test_nested_keys_are_refused() -> None:
    with pytest.raises(UnsupportedColumnError, match="list"):
        hashes([[1.0]], pa.array([[1]]))


def test_no_rows_have_no_identity() -> None:
    assert hash_rows(np.zeros((0, 4), np.float32), pa.array([], pa.string())).shape == (0, 2)
