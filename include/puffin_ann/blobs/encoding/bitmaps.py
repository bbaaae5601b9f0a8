"""Roaring bitmaps in their portable serialisation, as our blobs hold them."""

from pyroaring import BitMap

from puffin_ann.errors import BlobFormatError
from puffin_ann.roaring import sound_length


def encode(bitmap: BitMap) -> bytes:
    """Return the portable serialisation; equal sets give equal bytes, however they came about."""
    canonical = BitMap(bitmap)
    canonical.run_optimize()
    canonical.shrink_to_fit()
    return bytes(canonical.serialize())


def decode(data: bytes, size: int, where: str) -> BitMap:
    """Return the bitmap; `BlobFormatError` if malformed or with a member not below `size`."""
    try:
        length = sound_length(data)
        if length != len(data):
            raise ValueError(f"{len(data) - length} bytes follow the last container")
        bitmap = BitMap.deserialize(data)
    except (ValueError, IndexError) as error:
        raise BlobFormatError(f"{where}: not a portable Roaring bitmap: {error}") from None
    if bitmap and bitmap.max() >= size:
        raise BlobFormatError(f"{where}: position {bitmap.max()} is not below {size}")
    return bitmap
