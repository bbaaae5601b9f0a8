"""Avro files whose blocks lie: told as damage, at once, and no byte is read that is not there."""

import tracemalloc
import zlib
from collections.abc import Iterable

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from puffin_ann.errors import DataFileError, OutputLimitError
from puffin_ann.lake.read.avro.blocks import SMALLEST_LIMIT
from puffin_ann.lake.read.avro.safe_avro import records_of
from puffin_ann.lake.read.files.manifests import read_manifest_list
from tests.support.indexes import avro_files
from tests.support.indexes.avro_files import COMPRESS, block, number, text

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


SCHEMA = {"type": "record", "name": "record", "fields": FIELDS}


RECORD = text(b"one") + number(2) + b"\x01\x00" + number(0) + text(b"note") + number(-7)


def file_of(blocks: Iterable[bytes], **given: bytes) -> bytes:
    return avro_files.file_of(blocks, SCHEMA, **given)


def read(tmp_path, data: bytes) -> list[tuple[object, ...]]:
    path = tmp_path / "file.avro"
    path.write_bytes(data)
    return [(record[0], record[1]) for record in records_of(PyArrowFileIO(), str(path), WANTED)]


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
    with pytest.raises(
        Exception, match=r"bytes are expected|a block has other bytes|EOF|Requested"
    ):
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
    with pytest.raises(
        Exception, match=r"it does not begin|sync marker|bytes are expected|other bytes"
    ):
        read(tmp_path, data)


def test_a_file_may_be_cut_off_anywhere_but_behind_a_block(tmp_path):
    head = file_of([])
    whole = file_of([block(RECORD), block(RECORD * 2, 2)])
    ends = {len(head): 0, len(head) + len(block(RECORD)): 1}
    for size in range(len(whole)):
        if size in ends:
            assert len(read(tmp_path, whole[:size])) == ends[size]
        else:
            with pytest.raises(Exception, match=r"bytes are expected|EOF"):
                read(tmp_path, whole[:size])


def snappy(data: bytes) -> bytes:
    frame = pa.Codec("snappy").compress(data, asbytes=True)
    return frame + zlib.crc32(data).to_bytes(4, "big")


CODECS = {**COMPRESS, b"snappy": snappy}


@pytest.mark.parametrize("codec", CODECS)
def test_blocks_are_decompressed_by_every_codec_that_avro_names(tmp_path, codec):
    blocks = [block(CODECS[codec](RECORD * 3), 3), block(CODECS[codec](RECORD))]

    assert read(tmp_path, file_of(blocks, codec=codec)) == [(-7, "one")] * 4


@pytest.mark.parametrize("codec", [name for name in CODECS if name != b"null"])
def test_a_block_that_is_cut_off_is_damage_and_no_failing_store(tmp_path, codec):
    compressed = CODECS[codec](RECORD * 3)
    for size in range(0, len(compressed) - 4, 3):
        with pytest.raises(Exception, match=r".") as raised:
            read(tmp_path, file_of([block(compressed[:size], 3)], codec=codec))
        assert not isinstance(raised.value, OSError)


@pytest.mark.parametrize("codec", [b"deflate", b"bzip2", b"zstandard"])
def test_kilobytes_that_unpack_to_more_than_such_a_file_holds_take_little_memory(tmp_path, codec):
    one = CODECS[codec](bytes(24 << 20))
    several = [block(CODECS[codec](RECORD))] * 3 + [block(one)]
    tracemalloc.start()
    try:
        with pytest.raises(OutputLimitError, match="unpack to more"):
            read(tmp_path, file_of(several, codec=codec))
        assert tracemalloc.get_traced_memory()[1] < 3 * (SMALLEST_LIMIT + 256 * len(one))
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x0f", b"\xff" * 9])
def test_a_block_of_snappy_that_claims_more_than_it_can_hold_takes_none_of_it(tmp_path, size):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="larger than it can be"):
            read(tmp_path, file_of([block(size + b"\0" * 9)], codec=b"snappy"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


EMPTY = {"type": "record", "name": "empty", "fields": []}
ENDLESS = {
    "empty records": {"type": "array", "items": EMPTY, "element-id": 5},
    "bytes of width 0": {
        "type": "array",
        "items": {"type": "fixed", "name": "none", "size": 0},
        "element-id": 5,
    },
    "nulls": {"type": "array", "items": "null", "element-id": 5},
    "records of empty records": {
        "type": "array",
        "items": EMPTY | {"name": "outer", "fields": [{"name": "a", "type": EMPTY, "field-id": 6}]},
        "element-id": 5,
    },
}


@pytest.mark.parametrize("kind", ENDLESS.values(), ids=ENDLESS.keys())
def test_items_that_take_no_byte_are_refused_rather_than_counted(tmp_path, kind):
    fields = [FIELDS[0], {"name": "none", "type": kind, "field-id": 2}, FIELDS[3]]
    records = text(b"one") + number(HUGE) + number(0) + number(-7)
    data = avro_files.file_of([block(records)], SCHEMA | {"fields": fields})

    with pytest.raises(ValueError, match="take no byte"):
        read(tmp_path, data)


def test_a_field_id_given_twice_is_refused(tmp_path):
    twice = [*FIELDS, {"name": "other", "type": "string", "field-id": 1}]
    data = avro_files.file_of([block(RECORD + text(b"x"))], SCHEMA | {"fields": twice})

    with pytest.raises(ValueError, match="twice"):
        read(tmp_path, data)


def test_a_decimal_that_readers_skip_in_different_ways_is_refused(tmp_path):
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    fields = [*FIELDS, {"name": "other", "type": decimal, "field-id": 9}]
    data = avro_files.file_of([block(RECORD + number(4) + bytes(4))], SCHEMA | {"fields": fields})

    with pytest.raises(ValueError, match="a decimal where manifests have none"):
        read(tmp_path, data)


def test_a_manifest_list_whose_schema_lets_a_path_be_null_is_damage_where_one_is(tmp_path):
    names = [("manifest_path", ["null", "string"], 500), ("partition_spec_id", "int", 502)]
    fields = [{"name": name, "type": kind, "field-id": at} for name, kind, at in names]
    path = tmp_path / "list.avro"
    path.write_bytes(
        avro_files.file_of([block(number(0) + number(0))], SCHEMA | {"fields": fields})
    )

    with pytest.raises(DataFileError, match="no path"):
        read_manifest_list(PyArrowFileIO(), str(path))
