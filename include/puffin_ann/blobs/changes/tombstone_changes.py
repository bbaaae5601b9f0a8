"""The tombstone changes blob: rows of all shards that were deleted after their tombstones blobs.

A few deleted rows of many shards cost a few bytes here, and a blob, an entry in the footer and
one in every later directory each as tombstones blobs. What is named here grows until a shard's own
blob is written anew.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from puffin_ann.blobs.encoding import bitmaps
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter
from puffin_ann.errors import BlobFormatError

KIND = "tomc"
TYPE = "puffin-ann-tombstone-changes-v1"

HEAD = np.dtype([("shards", "<u4"), ("reserved", "<u4")])
SHARD = np.dtype([("shard_id", "<u4"), ("length", "<u4"), ("written", "<u8")])
MAX_ROWS = 1 << 32


@dataclass(frozen=True)
class AddedTombstones:
    """Rows of a shard that are deleted, and that its tombstones blob does not name.

    Attributes:
        ordinals: of the rows; not empty.
        written: bytes that were written of such rows since that blob was.
    """

    ordinals: BitMap
    written: int


def encode(shards: Mapping[int, AddedTombstones]) -> bytes:
    """Return the blob of what was added, by shard id; equal changes give equal bytes.

    Raises:
        BlobFormatError: a shard has no such rows.
    """
    head = np.zeros((), HEAD)
    head["shards"] = len(shards)
    records = np.zeros(len(shards), SHARD)
    bits = []
    for record, (shard_id, added) in zip(records, sorted(shards.items()), strict=True):
        bits.append(bitmaps.encode(added.ordinals))
        record["shard_id"] = shard_id
        record["length"] = len(bits[-1])
        record["written"] = added.written
    _check(shards)
    out = io.BytesIO()
    writer = ContainerWriter(out, KIND)
    writer.put("head", head)
    writer.put("shrd", records)
    writer.put("bits", b"".join(bits))
    writer.finish()
    return out.getvalue()


def decode(data: bytes) -> dict[int, AddedTombstones]:
    """Return what was added, by shard id; it takes little memory however many rows it names.

    Raises:
        FormatError: the blob is malformed.
    """
    reader = ContainerReader(io.BytesIO(data), KIND)
    count = int(reader.record("head", HEAD)["shards"])
    records = reader.array("shrd", SHARD, (count,))
    if np.any(records["shard_id"][1:] <= records["shard_id"][:-1]):
        raise BlobFormatError(f"{KIND} blob: shards are not in ascending order")
    ends = np.cumsum(records["length"], dtype=np.uint64).tolist()
    bits = reader.read("bits")
    if (ends[-1] if ends else 0) != len(bits):
        raise BlobFormatError(f"{KIND} blob: lengths of bitmaps do not sum up to section bits")
    found = {}
    for (shard_id, length, written), end in zip(records.tolist(), ends, strict=True):
        where = f"{KIND} blob, shard {shard_id}"
        ordinals = bitmaps.decode(bits[end - length : end], MAX_ROWS, where)
        found[shard_id] = AddedTombstones(ordinals, written)
    _check(found)
    return found


def _check(shards: Mapping[int, AddedTombstones]) -> None:
    for shard_id, added in shards.items():
        if not added.ordinals:
            raise BlobFormatError(f"{KIND} blob: shard {shard_id} has no deleted rows")
