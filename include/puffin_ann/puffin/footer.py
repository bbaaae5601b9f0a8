"""The footer as bytes: encode beside decode, and finding it from the end of a file."""

import io

import numpy as np

from puffin_ann.errors import PuffinFormatError
from puffin_ann.puffin import codecs
from puffin_ann.puffin.layout import (
    FLAG_COMPRESSED_PAYLOAD,
    FOOTER_OVERHEAD,
    FOOTER_TAIL,
    MAGIC,
)
from puffin_ann.puffin.metadata import FileMetadata
from puffin_ann.puffin.metadata import decode as decode_metadata
from puffin_ann.puffin.metadata import encode as encode_metadata
from puffin_ann.puffin.streams import RangeSource

MAX_PAYLOAD = 64 << 20
"""Largest footer accepted, before and after decompression: some 200,000 blobs."""

SMALL_PAYLOAD = 1 << 20
PAYLOAD_RATIO = 64
"""A compressed footer may unpack to so many times its size, and those bytes more: of thousands of
blobs alike it is a twenty-fifth. Each byte of JSON may become a hundred of memory."""

FIRST_READ = 16 << 10
"""Bytes read from the end at first. Most footers fit, and object stores charge by the request."""


LARGE_PAYLOAD = 1 << 20
"""Bytes of a payload that is compressed unless told otherwise: that of some 3,000 blobs."""


def encode(metadata: FileMetadata, *, compress: bool | None = None) -> bytes:
    """Return the whole footer: magic, payload, size, flags, magic.

    Args:
        metadata: what it says.
        compress: default: where it is large.
    """
    payload = encode_metadata(metadata)
    if compress is None:
        compress = len(payload) > LARGE_PAYLOAD
    if compress:
        payload = b"".join(codecs.CODECS["lz4"].compress([payload], len(payload)))
    if len(payload) > MAX_PAYLOAD:
        raise PuffinFormatError(f"footer payload of {len(payload)} bytes is over {MAX_PAYLOAD}")
    tail = np.zeros((), FOOTER_TAIL)
    tail["payload_size"] = len(payload)
    tail["flags"] = FLAG_COMPRESSED_PAYLOAD if compress else 0
    tail["magic"] = MAGIC
    return MAGIC + payload + tail.tobytes()


def read(
    source: RangeSource, length: int, footer_size: int | None
) -> tuple[FileMetadata, int, bytes]:
    """Return the metadata of a file of `length` bytes, the size of its footer, and the end read.

    Costs one range read if `footer_size` is right or the footer is under 16 KiB, else two.
    """
    name = source.name
    smallest = len(MAGIC) + FOOTER_OVERHEAD
    if length < smallest:
        raise PuffinFormatError(f"{name}: {length} bytes are too few for a Puffin file")
    guess = FIRST_READ if footer_size is None else max(footer_size, FOOTER_OVERHEAD)
    got = min(length, guess)
    end = source.read(length - got, got)
    payload_size, compressed = _decode_tail(end[-FOOTER_TAIL.itemsize :], name)
    size = payload_size + FOOTER_OVERHEAD
    if payload_size > MAX_PAYLOAD or size + len(MAGIC) > length:
        raise PuffinFormatError(f"{name}: footer payload cannot be {payload_size} bytes")
    if size > got:
        end = source.read(length - size, size - got) + end
    if len(end) == length and end[: len(MAGIC)] != MAGIC:
        raise PuffinFormatError(f"{name}: does not begin with {MAGIC!r}")
    footer = end[-size:]
    if footer[: len(MAGIC)] != MAGIC:
        raise PuffinFormatError(f"{name}: footer does not begin with {MAGIC!r}")
    payload = footer[len(MAGIC) : len(MAGIC) + payload_size]
    if compressed:
        frame = io.BytesIO(payload)
        limit = min(MAX_PAYLOAD, SMALL_PAYLOAD + PAYLOAD_RATIO * payload_size)
        payload = b"".join(codecs.CODECS["lz4"].decompress(frame, payload_size, limit))
    return decode_metadata(payload, name), size, end


def _decode_tail(data: bytes, name: str) -> tuple[int, bool]:
    tail = np.frombuffer(data, FOOTER_TAIL, count=1)[0]
    if tail["magic"] != MAGIC:
        raise PuffinFormatError(f"{name}: does not end with {MAGIC!r}; is it a Puffin file?")
    flags = int(tail["flags"])
    if flags & ~FLAG_COMPRESSED_PAYLOAD:
        raise PuffinFormatError(f"{name}: unknown footer flags {flags:#x}")
    payload_size = int(tail["payload_size"])
    if payload_size < 0:
        raise PuffinFormatError(f"{name}: negative footer payload size {payload_size}")
    return payload_size, bool(flags & FLAG_COMPRESSED_PAYLOAD)
