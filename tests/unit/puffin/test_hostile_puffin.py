"""Corrupt Puffin files and frames: a typed error or sound metadata, in bounded time and memory."""

import io
import json
import random
import tracemalloc

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from puffin_ann.errors import FormatError, OutputLimitError, PuffinFormatError
from puffin_ann.puffin import PuffinReader, PuffinWriter
from puffin_ann.puffin.codecs import CODECS
from tests.support.falsified.decoding_limits import Trial
from tests.support.falsified.mutation import mutate

LIMIT = 1 << 20


def file_of(payload: bytes, body: bytes = b"", *, flags: int = 0, size: int | None = None) -> bytes:
    """A Puffin file with a footer payload as given."""
    size = len(payload) if size is None else size
    tail = size.to_bytes(4, "little", signed=True) + flags.to_bytes(4, "little") + b"PFA1"
    return b"PFA1" + body + b"PFA1" + payload + tail


def footer_of(**blob) -> bytes:
    entry = {"type": "t", "fields": [1], "snapshot-id": 1, "sequence-number": 1}
    return json.dumps({"blobs": [entry | {"offset": 4, "length": 1} | blob]}).encode()


def sample(codec, *, compress_footer=False) -> bytes:
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        for i in range(3):
            writer.add(
                f"type-{i}",
                bytes(range(200)) * (i + 1),
                fields=[i],
                snapshot_id=2**40,
                sequence_number=i,
                properties={"shard": str(i), "name": "ü"},
                codec=codec,
            )
        writer.finish({"created-by": "test"}, compress_footer=compress_footer)
    return out.getvalue()


def read_all(data: bytes):
    reader = PuffinReader(io.BytesIO(data))
    contents = [reader.read(blob, limit=LIMIT) for blob in reader.metadata.blobs]
    for blob in reader.metadata.blobs:
        assert 4 <= blob.offset <= blob.offset + blob.length <= reader.length - reader.footer_size
        json.dumps(dict(blob.properties)).encode()
    assert all(len(content) <= LIMIT for content in contents)
    return reader.metadata, contents


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_file_corrupted_anywhere_is_refused_or_sound(codec, record_property):
    rng = random.Random(f"puffin {codec}")
    data = sample(codec, compress_footer=codec == "lz4")
    trial = Trial(record_property)

    for _ in range(600):
        trial.run(read_all, mutate(data, rng))
    trial.finish(refused=0.2)


def test_file_with_a_corrupted_payload_of_right_length_is_refused_or_sound(record_property):
    rng = random.Random("payload")
    data = sample("zstd")
    reader = PuffinReader(io.BytesIO(data))
    body = data[4 : reader.length - reader.footer_size]
    payload = data[reader.length - reader.footer_size + 4 : -12]
    words = [b'"offset":', b'"length":', b"-", b"9" * 30, b"[", b"{", b'""', b"null", b"\\ud800"]
    trial = Trial(record_property)

    for _ in range(800):
        corrupted = mutate(payload, rng)
        if rng.random() < 0.5:
            at = rng.randrange(len(payload))
            corrupted = payload[:at] + rng.choice(words) + payload[at + rng.randrange(12) :]
        trial.run(read_all, file_of(corrupted, body))
    trial.finish(refused=0.3)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_corrupted_frame_is_refused_or_gives_what_was_compressed(codec, record_property):
    rng = random.Random(f"frame {codec}")
    content = bytes(rng.choices(range(40), k=3000)) + bytes(5000)
    frame = b"".join(CODECS[codec].compress([content], len(content)))

    def decompress(data):
        return b"".join(CODECS[codec].decompress(io.BytesIO(data), len(data), LIMIT))

    trial = Trial(record_property)
    for _ in range(600):
        corrupted = mutate(frame, rng)
        value = trial.run(decompress, corrupted)
        # Both frames end in a checksum; only cutting that off as well can hide another change.
        assert value is None or value == content or len(corrupted) < len(frame)
    trial.finish(refused=0.6)


DEEP = b'{"blobs":[' + b'{"a":' * 200_000


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "JSON"),
        (b"[]", "object"),
        (b"{}", "blobs"),
        (b'{"blobs":{}}', "blobs"),
        (b'{"blobs":[1]}', "object"),
        (b'{"blobs":[],"blobs":[]}', "twice"),
        (b'{"blobs":[],"properties":{"a":"1","a":"2"}}', "twice"),
        (b'{"blobs":[],"properties":{"a":1}}', "string"),
        (b'{"blobs":[],"properties":[]}', "object"),
        (b'{"blobs":[],"properties":{"a":"\\ud800"}}', "Unicode"),
        (b'{"blobs":[],"x":NaN}', "NaN"),
        (b'{"blobs":[],"x":' + b"9" * 10_000 + b"}", "JSON"),
        (b'{"blobs":[]}\xff', "JSON"),
        (b'\xef\xbb\xbf{"blobs":[]}', "JSON"),
        (DEEP, "JSON|nested"),
        (b"[" * 1_000_000, "JSON|nested"),
        (footer_of(type=None), "type"),
        (footer_of(fields=None), "fields"),
        (footer_of(fields=["1"]), "fields"),
        (footer_of(fields=[True]), "fields"),
        (footer_of(offset=None), "offset"),
        (footer_of(offset=-1), "negative"),
        (footer_of(length=-1), "negative"),
        (footer_of(offset=1.0), "integer"),
        (footer_of(offset=2**63), "integer"),
        (footer_of(offset=3), "before byte 4"),
        (footer_of(length=3), "footer"),
        (footer_of(offset=2**62, length=2**62), "footer"),
        (footer_of(**{"compression-codec": 1}), "compression-codec"),
        (footer_of(**{"snapshot-id": "1"}), "snapshot-id"),
    ],
)
def test_footer_that_is_wrong_is_refused_and_says_why(payload, message):
    with pytest.raises(PuffinFormatError, match=message):
        PuffinReader(io.BytesIO(file_of(payload, b"ab")))


def test_footer_key_nobody_knows_is_skipped():
    reader = PuffinReader(io.BytesIO(file_of(footer_of(later={"x": [1.5]}), b"ab")))

    assert reader.read(reader.metadata.blobs[0]) == b"a"


def test_blobs_may_share_a_range_but_not_a_part_of_one():
    def two(offset, length):
        entry = json.loads(footer_of())["blobs"][0] | {"offset": 4, "length": 4}
        other = entry | {"offset": offset, "length": length}
        return file_of(json.dumps({"blobs": [entry, other]}).encode(), b"abcdefgh")

    assert len(PuffinReader(io.BytesIO(two(4, 4))).metadata.blobs) == 2
    assert len(PuffinReader(io.BytesIO(two(8, 4))).metadata.blobs) == 2
    for offset, length in ((4, 5), (7, 2), (5, 1)):
        with pytest.raises(PuffinFormatError, match="overlap"):
            PuffinReader(io.BytesIO(two(offset, length)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PFA1",
        b"PFA1PFA1",
        b"x" * 100,
        file_of(b'{"blobs":[]}', flags=2),
        file_of(b'{"blobs":[]}', flags=1 << 31),
        file_of(b'{"blobs":[]}', flags=1),
        file_of(b'{"blobs":[]}', size=-1),
        file_of(b'{"blobs":[]}', size=13),
        file_of(b'{"blobs":[]}', size=2**31 - 1),
        b"XXXX" + file_of(b'{"blobs":[]}')[4:],
        file_of(b'{"blobs":[]}')[:-1],
    ],
)
def test_file_whose_frame_is_wrong_is_refused(data):
    with pytest.raises(PuffinFormatError):
        PuffinReader(io.BytesIO(data))


def zstd(content, **options):
    return zstandard.ZstdCompressor(**options).compress(content)


def zstd_claiming(size):
    """A frame of a few bytes that claims `size` bytes of content."""
    return b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little") + b"\x01\x00\x00"


NO_SIZE = zstandard.ZstdCompressor(write_content_size=False).compress(b"abc")
SKIPPABLE = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"
LZ4_WRONG_SIZE = bytearray(lz4.frame.compress(b"a" * 1000, store_size=True))
LZ4_WRONG_SIZE[6] ^= 1

FRAMES = {
    "zstd claims a terabyte": ("zstd", zstd_claiming(1 << 40), PuffinFormatError),
    "zstd claims more than it can hold": ("zstd", zstd_claiming(1 << 19), PuffinFormatError),
    "zstd bomb": ("zstd", zstd(bytes(1 << 26)), OutputLimitError),
    "zstd without content size": ("zstd", NO_SIZE, PuffinFormatError),
    "zstd empty": ("zstd", b"", PuffinFormatError),
    "zstd cut off": ("zstd", zstd(bytes(range(256)) * 9)[:-4], PuffinFormatError),
    "zstd followed by another frame": ("zstd", zstd(b"abc") + zstd(b"abc"), PuffinFormatError),
    "zstd followed by garbage": ("zstd", zstd(b"abc") + b"garbage garbage", PuffinFormatError),
    "zstd begins with a skippable frame": ("zstd", SKIPPABLE + zstd(b"abc"), PuffinFormatError),
    "zstd with a window of 2 GiB": (
        "zstd",
        b"\x28\xb5\x2f\xfd\x80\xa8" + (1000).to_bytes(4, "little") + b"\x01\x00\x00",
        PuffinFormatError,
    ),
    "lz4 bomb": ("lz4", lz4.frame.compress(bytes(1 << 26)), OutputLimitError),
    "lz4 empty": ("lz4", b"", PuffinFormatError),
    "lz4 cut off": ("lz4", lz4.frame.compress(bytes(range(256)))[:-3], PuffinFormatError),
    "lz4 followed by garbage": ("lz4", lz4.frame.compress(b"abc") + b"x", PuffinFormatError),
    "lz4 with a wrong size": ("lz4", bytes(LZ4_WRONG_SIZE), PuffinFormatError),
    "unknown codec": ("brotli", b"abc", PuffinFormatError),
}


@pytest.mark.parametrize("name", FRAMES)
def test_hostile_frame_is_refused_in_little_memory(name):
    codec, frame, error = FRAMES[name]
    data = file_of(footer_of(length=len(frame), **{"compression-codec": codec}), frame)
    reader = PuffinReader(io.BytesIO(data))
    tracemalloc.start()
    try:
        with pytest.raises(error):
            reader.read(reader.metadata.blobs[0], limit=LIMIT)
        with pytest.raises(error):
            reader.extract(reader.metadata.blobs[0], io.BytesIO(), limit=LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 8 * LIMIT
    finally:
        tracemalloc.stop()


def test_footer_that_is_a_bomb_is_refused():
    payload = lz4.frame.compress(b'{"blobs":[]}' + b" " * (65 << 20), store_size=True)

    with pytest.raises(OutputLimitError):
        PuffinReader(io.BytesIO(file_of(payload, flags=1)))


def test_stream_that_ends_before_its_length_is_refused():
    data = sample(None)

    with pytest.raises(PuffinFormatError, match="ends"):
        PuffinReader(io.BytesIO(data), length=len(data) + 10)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
BLOB = st.fixed_dictionaries(
    {
        "type": st.text(max_size=8) | JSON,
        "fields": st.lists(st.integers()) | JSON,
        "offset": st.integers(-2, 40) | JSON,
        "length": st.integers(-2, 40) | JSON,
    },
    optional={
        "snapshot-id": st.integers() | JSON,
        "sequence-number": st.integers() | JSON,
        "compression-codec": st.sampled_from(["zstd", "lz4", "snappy"]) | JSON,
        "properties": st.dictionaries(st.text(), st.text()) | JSON,
    },
)


@settings(max_examples=40, deadline=2000, derandomize=True)
@given(document=st.fixed_dictionaries({"blobs": st.lists(BLOB, max_size=4)}) | JSON)
def test_any_json_as_footer_is_refused_or_sound(document):
    data = file_of(json.dumps(document).encode(), bytes(range(40)))
    try:
        metadata, _ = read_all(data)
    except FormatError:
        return
    assert len(metadata.blobs) == len(document["blobs"])


@settings(max_examples=150, deadline=2000, derandomize=True)
@given(tail=st.binary(max_size=80), magic=st.booleans())
def test_any_bytes_as_file_are_refused_or_sound(tail, magic):
    data = b"PFA1" + tail + (b"PFA1" if magic else b"")
    try:
        read_all(data)
    except FormatError:
        return


@settings(max_examples=300, deadline=2000, derandomize=True)
@given(
    contents=st.lists(st.tuples(st.binary(max_size=300), st.sampled_from([None, "zstd", "lz4"]))),
    properties=st.dictionaries(st.text(), st.text()),
    compress_footer=st.booleans(),
)
def test_whatever_is_written_is_read(contents, properties, compress_footer):
    if any("\ud800" <= c <= "\udfff" for pair in properties.items() for text in pair for c in text):
        return
    out = io.BytesIO()
    with PuffinWriter(out) as writer:
        for content, codec in contents:
            writer.add(
                "t",
                content,
                fields=[1, 2],
                snapshot_id=-1,
                sequence_number=2**62,
                properties=properties,
                codec=codec,
            )
        finished = writer.finish(properties, compress_footer=compress_footer)

    metadata, read = read_all(out.getvalue())
    assert metadata == finished.metadata
    assert read == [content for content, _ in contents]
