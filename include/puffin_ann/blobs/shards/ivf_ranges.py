"""An inverted-lists blob that is read by ranges: what its lists were trained as, then some of them.

Codes, ordinals and biases are stored list after list, so that neighbouring lists are one range of
each.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import metrics
from puffin_ann.blobs.encoding.container import ContainerReader
from puffin_ann.blobs.shards.ivf import (
    BITS,
    HEAD,
    KIND,
    RELATIVE,
    WORDS,
    Ivf,
    Shape,
    check_codebook,
    check_starts,
)
from puffin_ann.errors import BlobFormatError

TRAINED = ("orig", "cent", "pqof", "pqcb", "lsta")
"""Sections that are read before any list is; they are stored side by side."""

OF_ROWS = ("ordi", "code", "bias")


def trained_bytes(metric: str, dimension: int, lists: int, subspaces: int) -> int:
    """Return how many bytes the sections have that are read before any list is."""
    centroids = lists * metrics.search_dimension(metric, dimension)
    words = subspaces * WORDS * -(-dimension // subspaces)
    return 4 * (dimension + centroids + subspaces + 1 + words) + 8 * (lists + 1)


def trained_extent(reader: ContainerReader) -> tuple[int, int] | None:
    """Return which bytes of the blob those sections are among; None if it has no lists."""
    if not all(kind in reader for kind in (*TRAINED, *OF_ROWS)):
        return None
    parts = [reader.extent(kind, 0, reader.section_length(kind)) for kind in TRAINED]
    return min(start for start, _ in parts), max(stop for _, stop in parts)


def read_trained(reader: ContainerReader) -> Ivf:
    """Return a shard of which no row is known yet: `ordinals`, `codes` and `biases` are None.

    Raises:
        BlobFormatError, ChecksumError: the blob is not sound, or has no lists.
    """
    head = reader.record("head", HEAD)
    shape = Shape.of(head, KIND)
    if not shape.lists:
        raise BlobFormatError(f"{KIND} blob: no lists")
    arrays: dict[str, Any] = {}
    for section, name, dtype, wanted in shape.arrays():
        if section in OF_ROWS:
            length = np.dtype(dtype).itemsize
            for extent in wanted:
                length *= extent
            reader.expect(section, length)
            continue
        array = reader.array(section, dtype, wanted)
        if dtype == "<f4" and not np.isfinite(array).all():
            raise BlobFormatError(f"{KIND} blob, section {section}: not all is finite")
        arrays[name] = array
    check_starts(arrays["starts"], shape.rows)
    check_codebook(reader, shape)
    return Ivf(
        metric=shape.metric,
        vectors=None,
        relative=bool(int(head["flags"]) & RELATIVE),
        scale=float(head["scale"]),
        **arrays,
    )


def row_bytes(ivf: Ivf) -> dict[str, int]:
    """Return the bytes that a row has in each section of rows."""
    subspaces = 0 if ivf.codebook is None else len(ivf.codebook)
    return {"ordi": 4, "code": -(-subspaces * BITS // 8), "bias": 4}


def read_rows(
    reader: ContainerReader, ivf: Ivf, rows: int, start: int, stop: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint8], NDArray[np.float32]]:
    """Return ordinals, codes and biases of rows `[start, stop)` in the order of the lists.

    Args:
        reader: of the blob.
        ivf: as `read_trained` gives it.
        rows: of the shard.
        start: the first row.
        stop: the one behind the last.

    Raises:
        BlobFormatError, ChecksumError: they are not what was written, or not sound.
    """
    found = {
        kind: reader.read_range(kind, start * size, stop * size)
        for kind, size in row_bytes(ivf).items()
    }
    ordinals = np.frombuffer(found["ordi"], "<u4")
    biases = np.frombuffer(found["bias"], "<f4")
    if len(ordinals) and ordinals.max() >= rows:
        raise BlobFormatError(f"{KIND} blob: an ordinal is not below {rows}")
    if not np.isfinite(biases).all():
        raise BlobFormatError(f"{KIND} blob, section bias: not all is finite")
    codes = np.frombuffer(found["code"], np.uint8).reshape(stop - start, -1)
    return ordinals, codes, biases
