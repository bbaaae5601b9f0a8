"""The tombstones blob: which ordinals of a shard's rows blob are deleted, as a Roaring bitmap."""

import io

import numpy as np
from pyroaring import BitMap

from puffin_ann.blobs.encoding import bitmaps
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter
from puffin_ann.errors import BlobFormatError

KIND = "tomb"
TYPE = "puffin-ann-tombstones-v1"

HEAD = np.dtype([("deleted", "<u8")])
MAX_ROWS = 1 << 32


def encode(bitmap: BitMap) -> bytes:
    """Return the blob; equal sets give equal bytes."""
    head = np.zeros((), HEAD)
    head["deleted"] = len(bitmap)
    out = io.BytesIO()
    writer = ContainerWriter(out, KIND)
    writer.put("head", head)
    writer.put("bits", bitmaps.encode(bitmap))
    writer.finish()
    return out.getvalue()


def decode(data: bytes, rows: int = MAX_ROWS, deleted: int | None = None) -> BitMap:
    """Return the bitmap, which takes little memory however many ordinals it names.

    Args:
        data: the blob.
        rows: of the shard; each ordinal is below it.
        deleted: how many there must be; any number, if None.

    Raises:
        BlobFormatError: it is malformed, or not as it must be.
    """
    reader = ContainerReader(io.BytesIO(data), KIND)
    head = reader.record("head", HEAD)
    bitmap = bitmaps.decode(reader.read("bits"), rows, f"{KIND} blob")
    if len(bitmap) != int(head["deleted"]):
        raise BlobFormatError(f"{KIND} blob: {len(bitmap)} deleted rows, {head['deleted']} stated")
    if deleted is not None and len(bitmap) != deleted:
        raise BlobFormatError(
            f"{KIND} blob: {len(bitmap)} deleted rows, {deleted} by the routing blob"
        )
    return bitmap
