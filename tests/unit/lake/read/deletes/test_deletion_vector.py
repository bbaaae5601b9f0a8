import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from puffin_ann.errors import ChecksumError, FormatError
from puffin_ann.lake.read.deletes.deletion_vector import MAGIC, decode, decode_map
from puffin_ann.roaring import sound_length
from tests.support.paths import GOLDEN

DELETES = GOLDEN / "deletes"


def containers(array: list[int], run: range) -> BitMap:
    """An array, a run and a bitset, in containers 0, 1 and 2 of a 32-bit bitmap."""
    bitset = range((2 << 16) + 1, (3 << 16) - 1)
    return BitMap(array) | BitMap((1 << 16) + at for at in run) | BitMap(bitset)


CONTAINERS = {
    0: containers([5, 7], range(1, 1000)),
    1: containers([10, 20], range(10, 500)),
}


def frame(bitmap: bytes) -> bytes:
    body = MAGIC + bitmap
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def map_of(*parts: tuple[int, BitMap]) -> bytes:
    data = struct.pack("<Q", len(parts))
    for key, bitmap in parts:
        data += struct.pack("<I", key) + bitmap.serialize()
    return data


def spread(*keys: int) -> dict[int, BitMap]:
    return {key: BitMap(range(10)) for key in keys}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("64mapempty.bin", {}),
        ("64map32bitvals.bin", spread(0)),
        ("64mapspreadvals.bin", spread(*range(10))),
    ],
)
def test_64_bit_maps_written_by_others_are_read(name: str, expected: dict[int, BitMap]) -> None:
    assert decode_map((DELETES / name).read_bytes()) == expected


def test_the_map_that_iceberg_refuses_is_refused() -> None:
    with pytest.raises(FormatError):
        decode_map((DELETES / "64maphighvals.bin").read_bytes())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("empty-position-index.bin", []),
        ("small-alternating-values-position-index.bin", [1, 3, 5, 7, 9]),
        (
            "small-and-large-values-position-index.bin",
            [100, 101, (1 << 31) + 99, (1 << 31) + 100],
        ),
    ],
)
def test_vectors_written_by_iceberg_are_read(name: str, expected: list[int]) -> None:
    assert list(decode((DELETES / name).read_bytes())) == expected


def test_every_kind_of_container_is_read() -> None:
    # Arrays, runs and bitsets, in two 32-bit maps: positions above 2^32, so not a vector we take.
    blob = (DELETES / "all-container-types-position-index.bin").read_bytes()
    found = decode_map(blob[8:-4])
    assert found == CONTAINERS
    with pytest.raises(FormatError, match=r"2\^32"):
        decode(blob)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sets(st.integers(0, (1 << 32) - 1)), st.booleans()))
)
def test_any_map_is_read_back(parts) -> None:
    bitmaps: dict[int, BitMap] = {}
    for key, values, optimised in parts:
        bitmaps[key] = BitMap(values) | BitMap(range(70_000) if optimised else ())
        if optimised:
            bitmaps[key].run_optimize()
    data = map_of(*sorted(bitmaps.items()))
    assert decode_map(data) == bitmaps
    if set(bitmaps) <= {0}:
        assert decode(frame(data)) == bitmaps.get(0, BitMap())


@given(st.lists(st.integers(0, 1 << 20), max_size=200), st.booleans(), st.binary(max_size=20))
def test_the_length_of_a_bitmap_is_found_without_its_end(values, optimised, after) -> None:
    bitmap = BitMap(values) | BitMap(range(5000, 5000 * (1 + optimised)))
    bitmap.run_optimize()
    data = bitmap.serialize()
    assert sound_length(b"xx" + data + after, 2) == len(data)


BLOB = frame(map_of((0, BitMap([1, 5, 70_000]) | BitMap(range(100_000, 110_000)))))


@given(st.integers(0, len(BLOB) - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed(at: int, change: int) -> None:
    broken = bytearray(BLOB)
    broken[at] ^= change
    with pytest.raises(FormatError):
        decode(bytes(broken))


@given(st.integers(0, len(BLOB) - 1))
def test_a_cut_vector_is_refused(length: int) -> None:
    with pytest.raises(FormatError):
        decode(BLOB[:length])


@given(st.data())
def test_broken_bitmaps_behind_a_right_checksum_are_refused_or_read(data) -> None:
    body = bytearray(BLOB[8:-4])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode(frame(bytes(body)))
    except FormatError:
        return
    assert isinstance(found, BitMap)


def test_keys_out_of_order_are_refused() -> None:
    with pytest.raises(FormatError, match="key 0"):
        decode_map(map_of((1, BitMap([1])), (0, BitMap([1]))))


def test_bytes_left_over_are_refused() -> None:
    with pytest.raises(FormatError, match="left over"):
        decode_map(map_of((0, BitMap([1]))) + b"x")


def test_a_wrong_checksum_is_told_as_such() -> None:
    with pytest.raises(ChecksumError, match="CRC-32"):
        decode(BLOB[:-1] + bytes([BLOB[-1] ^ 1]))


ARRAY = BitMap([1, 3, 5]).serialize()
"""Values in a row would be a run, to some versions of the library."""


def cardinality(claimed: int) -> bytes:
    """A map of one array of three values, which claims to have others."""
    part = bytearray(ARRAY)
    part[10:12] = (claimed - 1).to_bytes(2, "little")
    return bytes(part)


LIES = {
    "more values than there are": cardinality(4),
    "as many values as a container takes": cardinality(65_536),
    "values that descend": ARRAY[:-6] + struct.pack("<3H", 1, 3, 2),
    "a value twice": ARRAY[:-6] + struct.pack("<3H", 1, 2, 2),
    "a container elsewhere": BitMap([1]).serialize()[:12] + struct.pack("<IH", 12, 1),
    "fewer bits than it claims": struct.pack("<IIHHI", 12346, 1, 0, 65_535, 16) + bytes(8192),
    "runs that overlap": struct.pack("<IBHHHHHHH", 12347, 1, 0, 9, 2, 0, 5, 3, 5),
    "a run beyond the container": struct.pack("<IBHHHHH", 12347, 1, 0, 9, 1, 65_530, 9),
    "runs that are fewer than it claims": struct.pack("<IBHHHHH", 12347, 1, 0, 99, 1, 0, 9),
}


@pytest.mark.parametrize("part", LIES.values(), ids=LIES.keys())
def test_a_bitmap_that_lies_is_refused_before_the_library_sees_it(part, monkeypatch) -> None:
    class Unseen(BitMap):
        @classmethod
        def deserialize(cls, _data):
            pytest.fail("the library was handed it")

    monkeypatch.setattr("puffin_ann.lake.read.deletes.deletion_vector.BitMap", Unseen)
    with pytest.raises(FormatError):
        decode(frame(struct.pack("<QI", 1, 0) + part))
