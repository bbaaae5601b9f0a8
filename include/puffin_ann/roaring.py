"""Roaring bitmaps in their portable serialisation, validated before any C code sees the bytes.

The roaring library's deserialiser says neither how many bytes it has read nor that it read past the
end, and checks little of what it reads: in bytes that are not sound it writes over memory. So the
structure is checked here, container by container, after
https://github.com/RoaringBitmap/RoaringFormatSpec.
"""

import struct
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_COOKIE_RUNS = 12347
_COOKIE_NO_RUNS = 12346
_OFFSETS_FROM = 4
_ARRAY_MAX = 4096
_BITMAP_BYTES = 8192
_SHORT = struct.Struct("<IIHHI")
"""Cookie, count of containers, then of the only one key, cardinality less 1, and offset."""
_SHORT_MAX = 64


def sound_length(data: bytes, start: int = 0) -> int:
    """Return the bytes of the 32-bit bitmap at `start`, of which every container is sound.

    Raises:
        ValueError: one is not, or the bytes end before it; says what is wrong.
    """
    short = _short_length(data, start)
    if short:
        return short
    # A view: offsets count from the bitmap's own beginning.
    return _validated(memoryview(data)[start:])


class _Descriptors(NamedTuple):
    keys: NDArray[np.uint16]
    cardinalities: NDArray[np.int64]
    runs: NDArray[np.bool_]
    offsets: NDArray[np.uint32] | None
    end: int


def _short_length(data: bytes, start: int) -> int:
    """Return the length of a sound bitmap of few values in one container; 0 if it is none.

    Most are: the rows deleted from one data file. Setting up arrays to check them takes ten times
    as long, and a table may have 100,000 such files.
    """
    if len(data) - start < _SHORT.size:
        return 0
    cookie, containers, _, last, offset = _SHORT.unpack_from(data, start)
    if (cookie, containers, offset) != (_COOKIE_NO_RUNS, 1, _SHORT.size) or last >= _SHORT_MAX:
        return 0
    length: int = _SHORT.size + 2 * (last + 1)
    if len(data) - start < length:
        return 0
    values = struct.unpack_from(f"<{last + 1}H", data, start + _SHORT.size)
    return length if all(before < after for before, after in pairwise(values)) else 0


def _validated(data: memoryview) -> int:
    described = _descriptors(data)
    if np.any(described.keys[1:] <= described.keys[:-1]):
        raise ValueError("keys are not ascending")
    position = described.end
    for i, (cardinality, is_runs) in enumerate(
        zip(described.cardinalities.tolist(), described.runs.tolist(), strict=True)
    ):
        if described.offsets is not None and int(described.offsets[i]) != position:
            raise ValueError(f"container {i} is not where the offset says")
        check = _check_runs if is_runs else _check_values
        position = check(data, position, cardinality)
    return position


def _descriptors(data: memoryview) -> _Descriptors:
    cookie = int(_take(data, 0, "<u4", 1)[0])
    position = 4
    if cookie & 0xFFFF == _COOKIE_RUNS:
        count = (cookie >> 16) + 1
        flags = _take(data, position, "u1", (count + 7) // 8)
        position += len(flags)
        runs = np.unpackbits(flags, bitorder="little")[:count].astype(bool)
    elif cookie == _COOKIE_NO_RUNS:
        count = int(_take(data, position, "<u4", 1)[0])
        position += 4
        if count > 1 << 16:
            raise ValueError(f"{count} containers")
        runs = np.zeros(count, bool)
    else:
        raise ValueError(f"cookie is {cookie}")
    pairs = _take(data, position, "<u2", 2 * count).reshape(count, 2)
    position += 4 * count
    offsets = None
    if cookie == _COOKIE_NO_RUNS or count >= _OFFSETS_FROM:
        offsets = _take(data, position, "<u4", count)
        position += 4 * count
    return _Descriptors(pairs[:, 0], pairs[:, 1].astype(np.int64) + 1, runs, offsets, position)


def _check_runs(data: memoryview, position: int, cardinality: int) -> int:
    count = int(_take(data, position, "<u2", 1)[0])
    runs = _take(data, position + 2, "<u2", 2 * count).reshape(count, 2).astype(np.int64)
    ends = runs[:, 0] + runs[:, 1]
    if np.any(runs[1:, 0] <= ends[:-1] + 1) or (count and ends[-1] > 0xFFFF):
        raise ValueError("runs overlap, adjoin or go too far")
    if int(runs[:, 1].sum()) + count != cardinality:
        raise ValueError("runs do not add up to their cardinality")
    return position + 2 + 4 * count


def _check_values(data: memoryview, position: int, cardinality: int) -> int:
    if cardinality <= _ARRAY_MAX:
        values = _take(data, position, "<u2", cardinality)
        if np.any(values[1:] <= values[:-1]):
            raise ValueError("values are not ascending")
        return position + 2 * cardinality
    bits = _take(data, position, "u1", _BITMAP_BYTES)
    if int(np.bitwise_count(bits).sum()) != cardinality:
        raise ValueError("bits do not add up to their cardinality")
    return position + _BITMAP_BYTES


def _take(data: memoryview, offset: int, dtype: str, count: int) -> NDArray[Any]:
    if offset + count * np.dtype(dtype).itemsize > len(data):
        raise ValueError("cut off")
    return np.frombuffer(data, dtype, count, offset)
