"""Roaring bitmaps in their portable serialisation, validated before any C code sees the bytes.

CRoaring's deserialiser checks lengths but not that containers are sorted and counted right, and
works with undefined results on those that are not. So the structure is checked here, container by
container, after https://github.com/RoaringBitmap/RoaringFormatSpec.
"""

import struct
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.errors import BlobFormatError

_COOKIE_RUNS = 12347
_COOKIE_NO_RUNS = 12346
_OFFSETS_FROM = 4
_ARRAY_MAX = 4096
_BITMAP_BYTES = 8192
_SHORT = struct.Struct("<IIHHI")
"""Cookie, count of containers, then of the only one key, cardinality less 1, and offset."""
_SHORT_MAX = 64


def encode(bitmap: BitMap) -> bytes:
    """Return the portable serialisation; equal sets give equal bytes, however they came about."""
    canonical = BitMap(bitmap)
    canonical.run_optimize()
    canonical.shrink_to_fit()
    return bytes(canonical.serialize())


def decode(data: bytes, size: int, where: str) -> BitMap:
    """Return the bitmap; `BlobFormatError` if malformed or with a member not below `size`."""
    try:
        if not _is_short(data):
            _validate(data)
        bitmap = BitMap.deserialize(data)
    except (ValueError, IndexError) as error:
        raise BlobFormatError(f"{where}: not a portable Roaring bitmap: {error}") from None
    if bitmap and bitmap.max() >= size:
        raise BlobFormatError(f"{where}: position {bitmap.max()} is not below {size}")
    return bitmap


class _Descriptors(NamedTuple):
    keys: NDArray[np.uint16]
    cardinalities: NDArray[np.int64]
    runs: NDArray[np.bool_]
    offsets: NDArray[np.uint32] | None
    end: int


def _is_short(data: bytes) -> bool:
    """Tell whether it is a sound bitmap of few values in one container.

    Most are: the rows deleted from one data file. Setting up arrays to check them takes ten times
    as long, and a table may have 100,000 such files.
    """
    if len(data) < _SHORT.size or len(data) > _SHORT.size + 2 * _SHORT_MAX:
        return False
    cookie, containers, _, last, offset = _SHORT.unpack_from(data)
    if (cookie, containers, offset) != (_COOKIE_NO_RUNS, 1, _SHORT.size):
        return False
    if len(data) != _SHORT.size + 2 * (last + 1):
        return False
    values = struct.unpack_from(f"<{last + 1}H", data, _SHORT.size)
    return all(before < after for before, after in pairwise(values))


def _validate(data: bytes) -> None:
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
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes follow the last container")


def _descriptors(data: bytes) -> _Descriptors:
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


def _check_runs(data: bytes, position: int, cardinality: int) -> int:
    count = int(_take(data, position, "<u2", 1)[0])
    runs = _take(data, position + 2, "<u2", 2 * count).reshape(count, 2).astype(np.int64)
    ends = runs[:, 0] + runs[:, 1]
    if np.any(runs[1:, 0] <= ends[:-1] + 1) or (count and ends[-1] > 0xFFFF):
        raise ValueError("runs overlap, adjoin or go too far")
    if int(runs[:, 1].sum()) + count != cardinality:
        raise ValueError("runs do not add up to their cardinality")
    return position + 2 + 4 * count


def _check_values(data: bytes, position: int, cardinality: int) -> int:
    if cardinality <= _ARRAY_MAX:
        values = _take(data, position, "<u2", cardinality)
        if np.any(values[1:] <= values[:-1]):
            raise ValueError("values are not ascending")
        return position + 2 * cardinality
    bits = _take(data, position, "u1", _BITMAP_BYTES)
    if int(np.bitwise_count(bits).sum()) != cardinality:
        raise ValueError("bits do not add up to their cardinality")
    return position + _BITMAP_BYTES


def _take(data: bytes, offset: int, dtype: str, count: int) -> NDArray[Any]:
    if offset + count * np.dtype(dtype).itemsize > len(data):
        raise ValueError("cut off")
    return np.frombuffer(data, dtype, count, offset)
