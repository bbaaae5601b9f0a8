"""Ways to corrupt bytes: at random, and behind checksums that are made right again."""

import io
import itertools
import random
import zlib

import numpy as np
import zstandard

from puffin_ann.blobs.encoding.container import SECTION, TRAILER, ContainerReader, ContainerWriter

EXTREMES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def _flip_bit(data, rng):
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_byte(data, rng):
    data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _set_integer(data, rng):
    width = rng.choice((1, 2, 4, 8))
    at = rng.randrange(len(data))
    old = int.from_bytes(data[at : at + width], "little")
    value = rng.choice((rng.choice(EXTREMES), old + 1, old - 1, old * 2, -old))
    data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")


def _truncate(data, rng):
    del data[rng.randrange(len(data)) :]


def _extend(data, rng):
    data += rng.choice((b"\0", b"\xff", rng.randbytes(9), bytes(300)))


def _remove_span(data, rng):
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 2, 4, 8, 32))]


def _repeat_span(data, rng):
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + rng.choice((1, 4, 8, 32))]


def _swap_spans(data, rng):
    width = rng.choice((1, 4, 8))
    a, b = rng.randrange(len(data)), rng.randrange(len(data))
    data[a : a + width], data[b : b + width] = data[b : b + width], data[a : a + width]


def _fill_span(data, rng):
    at = rng.randrange(len(data))
    end = min(len(data), at + rng.choice((4, 16, 64)))
    data[at:end] = rng.choice((b"\0", b"\x80", b"\xff")) * (end - at)


MUTATIONS = (
    _flip_bit,
    _flip_bit,
    _set_byte,
    _set_integer,
    _set_integer,
    _truncate,
    _extend,
    _remove_span,
    _repeat_span,
    _swap_spans,
    _fill_span,
)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Corrupt bytes in one to four places."""
    corrupted = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if corrupted:
            rng.choice(MUTATIONS)(corrupted, rng)
    return bytes(corrupted)


MAJORS = {"rows": 2}
"""Of the blobs that are not of the first version of the format."""


def sections_of(blob: bytes, kind: str) -> dict[str, bytes]:
    reader = ContainerReader(io.BytesIO(blob), kind, majors=(1, 2))
    return {name: reader.read(name) for name in reader.sections}


def assemble(sections: dict[str, bytes], kind: str, major: int | None = None) -> bytes:
    out = io.BytesIO()
    writer = ContainerWriter(out, kind, major=major or MAJORS.get(kind, 1))
    for name, data in sections.items():
        writer.put(name, data)
    writer.finish()
    return out.getvalue()


BLOCKS = {"adja": "adjt", "uppa": "uppt", "locs": "loct", "perm": "pert"}


def mutate_sealed(
    sections: dict[str, bytes], kind: str, rng: random.Random, major: int | None = None
) -> bytes:
    """Corrupt what sections hold, or which there are, under right checksums."""
    corrupted = dict(sections)
    name = rng.choice(list(corrupted))
    way = rng.random()
    if way < 0.04:
        del corrupted[name]
    elif way < 0.06:
        corrupted = {rng.choice(list(BLOCKS)) if n == name else n: d for n, d in corrupted.items()}
    elif way < 0.3:
        corrupted["head"] = mutate(corrupted["head"], rng)
    elif name in BLOCKS and way < 0.9:
        corrupted[name], corrupted[BLOCKS[name]] = _mutate_blocks(
            corrupted[name], corrupted[BLOCKS[name]], rng
        )
    else:
        corrupted[name] = mutate(corrupted[name], rng)
    return assemble(corrupted, kind, major)


def _mutate_blocks(frames: bytes, table: bytes, rng: random.Random) -> tuple[bytes, bytes]:
    """Corrupt the content of one compressed block, its frame and offset being right again."""
    offsets = np.frombuffer(table, "<u8").tolist()
    parts = [frames[a:b] for a, b in itertools.pairwise(offsets)]
    if not parts:
        return frames, mutate(table, rng)
    at = rng.randrange(len(parts))
    content = mutate(zstandard.ZstdDecompressor().decompress(parts[at]), rng)
    parts[at] = zstandard.ZstdCompressor().compress(content)
    lengths = np.cumsum([0, *map(len, parts)]).astype("<u8")
    return b"".join(parts), lengths.tobytes()


def mutate_table(blob: bytes, rng: random.Random) -> bytes:
    """Corrupt header, section table or trailer, the checksum over them being right again."""
    corrupted = bytearray(blob)
    trailer = np.frombuffer(blob, TRAILER, 1, len(blob) - TRAILER.itemsize)[0]
    table, count = int(trailer["table_offset"]), int(trailer["sections"])
    end = len(blob) - TRAILER.itemsize
    if rng.random() < 0.7:
        row = table + SECTION.itemsize * rng.randrange(count)
        at = row + rng.choice((0, 8, 16, 24))
    else:
        at = rng.choice((0, 4, 8, 10, end, end + 8, end + 16, end + 28))
    width = rng.choice((1, 2, 4, 8))
    old = int.from_bytes(corrupted[at : at + width], "little")
    value = rng.choice((rng.choice(EXTREMES), old + rng.randrange(-40, 40), rng.getrandbits(64)))
    corrupted[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    del corrupted[len(blob) :]
    checked = corrupted[:16] + corrupted[table:end] + corrupted[end : end + 20]
    corrupted[end + 20 : end + 24] = zlib.crc32(checked).to_bytes(4, "little")
    return bytes(corrupted)
