"""The partitions blob: the k-means cells of an index, with what a probe must know of each.

Apart from the routing blob, which is made again with every version: cells only change when an index
is built, or when deltas are merged into its shards. Until then this blob, by far the larger one, is
copied from version to version.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import metrics
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter, length_of
from puffin_ann.errors import BlobFormatError

KIND = "part"
TYPE = "puffin-ann-partitions-v1"

HEAD = np.dtype(
    [
        ("metric", "<u4"),
        ("dimension", "<u4"),
        ("centroid_dimension", "<u4"),
        ("partitions", "<u4"),
    ]
)


@dataclass(frozen=True, eq=False)
class Partitions:
    """The cells that the rows of an index are spread over.

    Attributes:
        metric: `"l2"`, `"cosine"` or `"ip"`.
        dimension: width of the indexed vectors.
        centroids: `(k, dc) float32`, one per cell; `dc` is `dimension`, one more for `ip`.
        shards: `(k,) uint32`, the id of the shard that each cell belongs to.
        rows: `(k,) uint64`, rows per cell when it last changed.
        radii: `(k,) float32`, largest distance of a row to its centroid in the space of the
            centroids, rounded up; infinite if not known.
    """

    metric: str
    dimension: int
    centroids: NDArray[np.float32]
    shards: NDArray[np.uint32]
    rows: NDArray[np.uint64]
    radii: NDArray[np.float32]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.centroids)

    def among(self, shards: Sequence[int]) -> "Partitions":
        """Return them for some shards, by id: cells of others lead to the first of these."""
        is_kept = np.isin(self.shards, np.array(shards, np.uint32))
        if is_kept.all():
            return self
        return replace(self, shards=np.where(is_kept, self.shards, np.uint32(shards[0])))


def size_of(count: int, metric: str, dimension: int) -> int:
    """Return the bytes of a blob of so many cells, not compressed, which it hardly can be."""
    width = metrics.search_dimension(metric, dimension)
    return length_of([HEAD.itemsize, 4 * count * width, 4 * count, 8 * count, 4 * count])


def none(metric: str, dimension: int) -> Partitions:
    """Return the cells of an index that has none."""
    width = metrics.search_dimension(metric, dimension)
    return Partitions(
        metric=metric,
        dimension=dimension,
        centroids=np.zeros((0, width), np.float32),
        shards=np.zeros(0, np.uint32),
        rows=np.zeros(0, np.uint64),
        radii=np.zeros(0, np.float32),
    )


def encode(value: Partitions) -> bytes:
    """Return the blob, the same bytes for the same value; `BlobFormatError` if it is not sound."""
    check(value, KIND)
    partitions, centroid_dimension = value.centroids.shape
    head = np.zeros((), HEAD)
    head["metric"] = metrics.code(value.metric)
    head["dimension"] = value.dimension
    head["centroid_dimension"] = centroid_dimension
    head["partitions"] = partitions
    out = io.BytesIO()
    writer = ContainerWriter(out, KIND)
    writer.put("head", head)
    put(value, writer)
    writer.finish()
    return out.getvalue()


def decode(data: bytes) -> Partitions:
    """Return the cells, every array read-only; typed errors for anything not as it should be."""
    reader = ContainerReader(io.BytesIO(data), KIND)
    head = reader.record("head", HEAD)
    metric = metrics.name(int(head["metric"]), f"{KIND} blob")
    shape = int(head["partitions"]), int(head["centroid_dimension"])
    value = get(reader, metric, int(head["dimension"]), shape)
    check(value, KIND)
    return value


def put(value: Partitions, writer: ContainerWriter) -> None:
    """Write the sections of the cells."""
    writer.put("cent", value.centroids.astype("<f4"))
    writer.put("psha", value.shards.astype("<u4"))
    writer.put("prow", value.rows.astype("<u8"))
    writer.put("prad", value.radii.astype("<f4"))


def get(reader: ContainerReader, metric: str, dimension: int, shape: tuple[int, int]) -> Partitions:
    """Read the sections of the cells, `(partitions, centroid_dimension)` by the blob's head."""
    partitions = shape[:1]
    return Partitions(
        metric=metric,
        dimension=dimension,
        centroids=reader.array("cent", "<f4", shape),
        shards=reader.array("psha", "<u4", partitions),
        rows=reader.array("prow", "<u8", partitions),
        radii=reader.array("prad", "<f4", partitions),
    )


def check(value: Partitions, kind: str) -> None:
    """Refuse, in a blob of a kind, what a search would trip over, on writing as on reading.

    Raises:
        BlobFormatError: says what is wrong.
    """
    partitions, width = value.centroids.shape
    lengths = {value.shards.shape, value.rows.shape, value.radii.shape}
    problems = {
        f"centroids are {width} wide, vectors {value.dimension}": width
        != metrics.search_dimension(value.metric, value.dimension),
        "a centroid is not finite": not np.isfinite(value.centroids).all(),
        "a radius is negative or NaN": not (value.radii >= 0).all(),
        "the figures of partitions are of different lengths": lengths != {(partitions,)},
    }
    for problem, there in problems.items():
        if there:
            raise BlobFormatError(f"{kind} blob: {problem}")
