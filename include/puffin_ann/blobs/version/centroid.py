"""The centroid blob: a centroid and a radius per data file, to leave out files of a query.

Laid out after section 4.1 of the paper: its 32-byte header, its entries and its path table are
three sections in a row, so that the bytes from the first on are the paper's structure.
"""

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import metrics
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter
from puffin_ann.blobs.encoding.container_layout import ALIGNMENT
from puffin_ann.errors import BlobFormatError

KIND = "cent"
TYPE = "puffin-ann-centroid-v1"

MAGIC = b"ANNI"
VERSION = 1

HEAD = np.dtype(
    [
        ("magic", "S4"),
        ("version", "<u4"),
        ("dimension", "<u4"),
        ("entries", "<u4"),
        ("files", "<u4"),
        ("metric", "<u4"),
        ("entry_size", "<u4"),
        ("paths_offset", "<u4"),
    ]
)
PATH_LENGTH = np.dtype("<u4")
MAX_DIMENSION = 1 << 16


def entry(dimension: int) -> np.dtype[np.void]:
    """Return the layout of an entry for vectors of a dimension."""
    return np.dtype([("centroid", "<f4", (dimension,)), ("file", "<u4"), ("max_distance", "<f4")])


@dataclass(frozen=True, eq=False)
class Centroids:
    """File-level centroids; a file may have several.

    Attributes:
        metric: `"l2"`, `"cosine"` or `"ip"`.
        centroids: `(n, d) float32`.
        files: `(n,) uint32`, index into `paths`.
        max_distances: `(n,) float32`, the largest distance from the centroid to a vector of the
            file it stands for, rounded up: a file whose centroid is farther than this plus a
            threshold holds nothing within the threshold.
        paths: paths of data files, as in the coverage blob.
    """

    metric: str
    centroids: NDArray[np.float32]
    files: NDArray[np.uint32]
    max_distances: NDArray[np.float32]
    paths: tuple[str, ...]


def encode(value: Centroids) -> bytes:
    """Return the blob; `BlobFormatError` if the arrays do not fit each other."""
    count, dimension = value.centroids.shape
    if {len(value.files), len(value.max_distances)} != {count}:
        raise BlobFormatError(f"{KIND} blob: arrays differ in length")
    _check(value)
    layout = entry(dimension)
    entries = np.zeros(count, layout)
    entries["centroid"] = value.centroids
    entries["file"] = value.files
    entries["max_distance"] = value.max_distances
    head = np.zeros((), HEAD)
    head["magic"] = MAGIC
    head["version"] = VERSION
    head["dimension"] = dimension
    head["entries"] = count
    head["files"] = len(value.paths)
    head["metric"] = metrics.code(value.metric)
    head["entry_size"] = layout.itemsize
    head["paths_offset"] = _paths_offset(count, layout.itemsize)
    out = io.BytesIO()
    writer = ContainerWriter(out, KIND)
    writer.put("head", head)
    writer.put("entr", entries)
    writer.put("path", _encode_paths(value.paths))
    writer.finish()
    return out.getvalue()


def decode(data: bytes) -> Centroids:
    """Return the centroids, arrays read-only; typed errors for anything not as it should be."""
    reader = ContainerReader(io.BytesIO(data), KIND)
    head = reader.record("head", HEAD)
    count, dimension = int(head["entries"]), int(head["dimension"])
    if head["magic"] != MAGIC or int(head["version"]) != VERSION:
        raise BlobFormatError(f"{KIND} blob: header is not {MAGIC!r} version {VERSION}")
    if not 0 < dimension <= MAX_DIMENSION:
        raise BlobFormatError(f"{KIND} blob: dimension {dimension}")
    layout = entry(dimension)
    described = (int(head["entry_size"]), int(head["paths_offset"]))
    if described != (layout.itemsize, _paths_offset(count, layout.itemsize)):
        raise BlobFormatError(f"{KIND} blob: entry size or offset of paths is wrong")
    entries = reader.array("entr", layout, (count,))
    value = Centroids(
        metric=metrics.name(int(head["metric"]), f"{KIND} blob"),
        centroids=np.ascontiguousarray(entries["centroid"]),
        files=np.ascontiguousarray(entries["file"]),
        max_distances=np.ascontiguousarray(entries["max_distance"]),
        paths=_decode_paths(reader.read("path"), int(head["files"])),
    )
    _check(value)
    return value


def _paths_offset(count: int, entry_size: int) -> int:
    offset = HEAD.itemsize + count * entry_size
    offset += -offset % ALIGNMENT
    if offset >= 1 << 32:
        raise BlobFormatError(f"{KIND} blob: {count} entries of {entry_size} bytes are over 4 GiB")
    return offset


def _encode_paths(paths: tuple[str, ...]) -> bytes:
    encoded = [path.encode() for path in paths]
    return b"".join(np.array(len(path), PATH_LENGTH).tobytes() + path for path in encoded)


def _decode_paths(data: bytes, count: int) -> tuple[str, ...]:
    paths: list[str] = []
    position = 0
    while position < len(data) and len(paths) < count:
        start = position + PATH_LENGTH.itemsize
        length = int.from_bytes(data[position:start], "little")
        position = start + length
        try:
            paths.append(data[start:position].decode())
        except UnicodeDecodeError:
            raise BlobFormatError(f"{KIND} blob: path {len(paths)} is not UTF-8") from None
    if position != len(data) or len(paths) != count:
        raise BlobFormatError(f"{KIND} blob: table of paths does not hold {count} paths")
    return tuple(paths)


def _check(value: Centroids) -> None:
    if len(value.files) and int(value.files.max()) >= len(value.paths):
        raise BlobFormatError(f"{KIND} blob: an entry names a file that has no path")
    if not np.isfinite(value.centroids).all() or not (value.max_distances >= 0).all():
        raise BlobFormatError(f"{KIND} blob: a centroid or a radius is not a finite number")
