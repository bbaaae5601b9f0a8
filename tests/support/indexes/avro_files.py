"""Avro files by hand: sound ones taken apart, and any put together, with lengths that are right."""

import bz2
import json
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import zstandard

MAGIC = b"Obj\x01"
SYNC = bytes(range(16))


def number(value: int) -> bytes:
    """A zigzag varint."""
    value, out = (value << 1) ^ (value >> 63), bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def block(records: bytes, count: int = 1, size: int | None = None, sync: bytes = SYNC) -> bytes:
    return number(count) + number(len(records) if size is None else size) + records + sync


def file_of(
    blocks: Iterable[bytes],
    schema: bytes | dict[str, Any],
    *,
    magic: bytes = MAGIC,
    codec: bytes = b"null",
) -> bytes:
    schema = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    meta = {b"avro.schema": schema, b"avro.codec": codec}
    pairs = b"".join(text(key) + text(value) for key, value in meta.items())
    return magic + number(len(meta)) + pairs + number(0) + SYNC + b"".join(blocks)


def _deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


def _inflate(data: bytes) -> bytes:
    return zlib.decompress(data, -15)


def _zstandard(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


COMPRESS = {
    b"null": bytes,
    b"deflate": _deflate,
    b"bzip2": bz2.compress,
    b"zstandard": _zstandard,
}
_DECOMPRESS = {
    b"null": bytes,
    b"deflate": _inflate,
    b"bzip2": bz2.decompress,
    b"zstandard": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
}


class Parts(NamedTuple):
    """An Avro file taken apart: of its blocks, how many records and their bytes, decompressed."""

    schema: bytes
    codec: bytes
    blocks: list[tuple[int, bytes]]


def parts_of(data: bytes) -> Parts:
    """Take apart a file that is sound so far; whatever is wrong raises something."""
    at = len(MAGIC)

    def take_number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)

    def take(size: int) -> bytes:
        nonlocal at
        if not 0 <= size <= len(data) - at:
            raise EOFError
        at += size
        return data[at - size : at]

    meta: dict[bytes, bytes] = {}
    while count := take_number():
        for _ in range(count):
            key = take(take_number())
            meta[key] = take(take_number())
    take(len(SYNC))
    codec = meta.get(b"avro.codec", b"null")
    blocks = []
    while at < len(data):
        count = take_number()
        blocks.append((count, _DECOMPRESS[codec](take(take_number()))))
        take(len(SYNC))
    return Parts(meta[b"avro.schema"], codec, blocks)


def assembled(parts: Parts) -> bytes:
    compress = COMPRESS[parts.codec]
    blocks = [block(compress(records), count) for count, records in parts.blocks]
    return file_of(blocks, parts.schema, codec=parts.codec)
