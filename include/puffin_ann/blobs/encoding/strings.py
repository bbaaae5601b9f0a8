"""A list of texts as one section: count, lengths, then all UTF-8 bytes in a row."""

from collections.abc import Iterable, Mapping

import numpy as np

from puffin_ann.errors import BlobFormatError

LENGTH = np.dtype("<u4")


def encode(texts: Iterable[str]) -> bytes:
    """Return `count` (u32), `count` byte lengths (u32), and the texts without separators."""
    encoded = [text.encode() for text in texts]
    lengths = np.array([len(encoded), *map(len, encoded)], LENGTH)
    return lengths.tobytes() + b"".join(encoded)


def decode(data: bytes, where: str) -> tuple[str, ...]:
    """Return the texts; `BlobFormatError` if lengths and bytes do not agree or are not UTF-8."""
    size = LENGTH.itemsize
    if len(data) < size:
        raise BlobFormatError(f"{where}: list of texts is cut off")
    count = int(np.frombuffer(data, LENGTH, count=1)[0])
    start = size * (1 + count)
    if start > len(data):
        raise BlobFormatError(f"{where}: {count} texts do not fit in {len(data)} bytes")
    ends = start + np.cumsum(np.frombuffer(data, LENGTH, count, size), dtype=np.uint64)
    if (int(ends[-1]) if count else start) != len(data):
        raise BlobFormatError(f"{where}: lengths of texts do not sum up to the section")
    texts = []
    try:
        for end in ends.tolist():
            texts.append(data[start:end].decode())
            start = end
    except UnicodeDecodeError:
        raise BlobFormatError(f"{where}: text {len(texts)} is not UTF-8") from None
    return tuple(texts)


def encode_mapping(mapping: Mapping[str, str]) -> bytes:
    """Return a mapping as key, value, key, value…, sorted by key."""
    return encode(text for pair in sorted(mapping.items()) for text in pair)


def decode_mapping(data: bytes, where: str) -> dict[str, str]:
    """Return a mapping; `BlobFormatError` for a key without value or given twice."""
    texts = decode(data, where)
    keys, values = texts[::2], texts[1::2]
    mapping = dict(zip(keys, values, strict=False))
    if len(texts) % 2 or len(mapping) != len(keys):
        raise BlobFormatError(f"{where}: a key has no value or is there twice")
    return mapping
