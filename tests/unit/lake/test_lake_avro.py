"""Avro files whose blocks lie: told as damage, at once, and no byte is read that is not there."""

import json
from collections.abc import Iterable

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from puffin_ann.lake.avro import records_of

SYNC = bytes(range(16))
FIELDS = [
    {"name": "name", "type": "string", "field-id": 1},
    {
        "name": "flags",
        "type": {"type": "array", "items": "boolean", "element-id": 5},
        "field-id": 2,
    },
    {"name": "note", "type": "bytes", "field-id": 3},
    {"name": "number", "type": "long", "field-id": 4},
]
WANTED = Schema(
    NestedField(4, "number", LongType(), required=True),
    NestedField(1, "name", StringType(), required=True),
)


def number(value: int) -> bytes:
    """A zigzag varint."""
    value, out = (value << 1) ^ (value >> 63), bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


RECORD = text(b"one") + number(2) + b"\x01\x00" + number(0) + text(b"note") + number(-7)


def block(records: bytes, count: int = 1, size: int | None = None, sync: bytes = SYNC) -> bytes:
    return number(count) + number(len(records) if size is None else size) + records + sync


def file_of(blocks: Iterable[bytes], *, magic: bytes = b"Obj\x01") -> bytes:
    schema = json.dumps({"type": "record", "name": "record", "fields": FIELDS}).encode()
    meta = {b"avro.schema": schema, b"avro.codec": b"null"}
    pairs = b"".join(text(key) + text(value) for key, value in meta.items())
    return magic + number(len(meta)) + pairs + number(0) + SYNC + b"".join(blocks)


def read(tmp_path, data: bytes) -> list[tuple[object, ...]]:
    path = tmp_path / "file.avro"
    path.write_bytes(data)
    return [(one[0], one[1]) for one in records_of(PyArrowFileIO(), str(path), WANTED)]


def test_fields_are_found_by_their_ids_and_others_skipped(tmp_path):
    assert read(tmp_path, file_of([])) == []
    assert read(tmp_path, file_of([block(RECORD * 3, 3), block(RECORD)])) == [(-7, "one")] * 4


HUGE = 2**40
LIES = {
    "more items than bytes": text(b"one") + number(HUGE) + b"\x01",
    "more bytes of items than bytes": text(b"one") + number(-2) + number(HUGE) + b"\x01",
    "bytes of items that go back": text(b"one") + number(-2) + number(-9) + b"\x01",
    "a text longer than the block": number(HUGE) + RECORD,
    "a text of negative length": number(-5) + RECORD,
    "skipped bytes past the end": text(b"one") + number(0) + number(HUGE) + number(1),
    "skipped bytes that go back": text(b"one") + number(0) + number(-3) + number(1),
    "a number that never ends": text(b"one") + number(0) + text(b"") + b"\xff" * 9,
    "more bytes than its records": RECORD + b"\x00",
    "fewer bytes than its record": RECORD[:-1],
}


@pytest.mark.parametrize("records", LIES.values(), ids=LIES.keys())
def test_a_block_that_lies_is_damage(tmp_path, records):
    with pytest.raises(Exception, match=r"bytes are due|a block has other bytes|EOF|Requested"):
        read(tmp_path, file_of([block(records)]))


FILES = {
    "another magic": file_of([block(RECORD)], magic=b"Obj\x02"),
    "another sync marker": file_of([block(RECORD, sync=bytes(16))]),
    "a block longer than the file": file_of([block(RECORD, size=HUGE)]),
    "a block of negative length": file_of([block(RECORD, size=-4)]),
    "more records than there are": file_of([block(RECORD, count=HUGE)]),
    "a negative number of records": file_of([block(RECORD, count=-1)]),
}


@pytest.mark.parametrize("data", FILES.values(), ids=FILES.keys())
def test_a_file_that_is_none_is_damage(tmp_path, data):
    with pytest.raises(Exception, match=r"it does not begin|sync marker|bytes are due|other bytes"):
        read(tmp_path, data)


def test_a_file_may_be_cut_off_anywhere_but_behind_a_block(tmp_path):
    head = file_of([])
    whole = file_of([block(RECORD), block(RECORD * 2, 2)])
    ends = {len(head): 0, len(head) + len(block(RECORD)): 1}
    for size in range(len(whole)):
        if size in ends:
            assert len(read(tmp_path, whole[:size])) == ends[size]
        else:
            with pytest.raises(Exception, match=r"bytes are due|EOF"):
                read(tmp_path, whole[:size])
