"""The routing blob: centroids, which partition lies in which shard, and each shard's figures.

A probe reads this blob alone to know which shards to ask.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs import metrics, strings
from puffin_ann.blobs.container import ContainerReader, ContainerWriter
from puffin_ann.errors import BlobFormatError

KIND = "rout"
TYPE = "puffin-ann-routing-v1"

HEAD = np.dtype(
    [
        ("metric", "<u4"),
        ("dimension", "<u4"),
        ("centroid_dimension", "<u4"),
        ("partitions", "<u4"),
        ("shards", "<u4"),
        ("search_width", "<u4"),
        ("probe_partitions", "<u4"),
        ("reserved", "<u4"),
        ("norm_bound", "<f8"),
    ]
)
SHARD = np.dtype(
    [
        ("shard_id", "<u4"),
        ("kind", "<u4"),
        ("rows", "<u8"),
        ("bytes", "<u8"),
        ("tombstones", "<u8"),
    ]
)
RECALL = np.dtype(
    [
        ("k", "<u4"),
        ("queries", "<u4"),
        ("recall", "<f8"),
        ("low", "<f8"),
        ("high", "<f8"),
        ("target", "<f8"),
    ]
)

ShardKind = Literal["graph", "delta"]
_SHARD_KINDS: tuple[ShardKind, ...] = ("graph", "delta")


@dataclass(frozen=True)
class ShardEntry:
    """One shard: the Puffin file its blobs lie in (empty: this one) and what it holds.

    `bytes` are those of the shard's graph or delta blob; `tombstones` are rows of `rows` that are
    deleted.
    """

    shard_id: int
    file: str
    rows: int
    bytes: int
    tombstones: int
    kind: ShardKind


@dataclass(frozen=True)
class Recall:
    """What the gate measured: mean recall@k over `queries`, its 95 % interval, and the target."""

    k: int
    queries: int
    recall: float
    low: float
    high: float
    target: float


@dataclass(frozen=True, eq=False)
class Routing:
    """How to find the shards that may hold a query's neighbours.

    Attributes:
        metric: `"l2"`, `"cosine"` or `"ip"`.
        algorithm: Name of the engine that built the shards.
        dimension: Width of the indexed vectors.
        centroids: `(k, dc) float32`, one per partition; `dc` is `dimension`, one more for `ip`.
        partition_shards: `(k,) uint32`, the shard id each partition lies in.
        partition_rows: `(k,) uint64`, rows per partition at the base snapshot.
        partition_radii: `(k,) float32`, largest distance of a row to its centroid in the space of
            the centroids, rounded up; infinite if not known.
        norm_bound: Largest vector norm, as the `ip` augmentation used it; 0 for other metrics.
        shards: The shards.
        search_width: Beam width a search uses unless told otherwise.
        probe_partitions: Partitions a search visits unless told otherwise.
        recall: What the gate measured, if it did.
        properties: Free text: the declaration, its fingerprint, the run id, stage seconds.

    """

    metric: str
    algorithm: str
    dimension: int
    centroids: NDArray[np.float32]
    partition_shards: NDArray[np.uint32]
    partition_rows: NDArray[np.uint64]
    partition_radii: NDArray[np.float32]
    norm_bound: float
    shards: tuple[ShardEntry, ...]
    search_width: int
    probe_partitions: int
    recall: Recall | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def encode(routing: Routing) -> bytes:
    """Return the blob; `BlobFormatError` if the routing contradicts itself."""
    _check(routing)
    partitions, centroid_dimension = routing.centroids.shape
    head = np.zeros((), HEAD)
    head["metric"] = metrics.code(routing.metric)
    head["dimension"] = routing.dimension
    head["centroid_dimension"] = centroid_dimension
    head["partitions"] = partitions
    head["shards"] = len(routing.shards)
    head["search_width"] = routing.search_width
    head["probe_partitions"] = routing.probe_partitions
    head["norm_bound"] = routing.norm_bound

    out = io.BytesIO()
    writer = ContainerWriter(out, KIND)
    writer.put("head", head)
    writer.put("algo", strings.encode([routing.algorithm]))
    writer.put("cent", routing.centroids.astype("<f4"))
    writer.put("psha", routing.partition_shards.astype("<u4"))
    writer.put("prow", routing.partition_rows.astype("<u8"))
    writer.put("prad", routing.partition_radii.astype("<f4"))
    writer.put("shrd", _shard_records(routing.shards))
    writer.put("file", strings.encode(shard.file for shard in routing.shards))
    if routing.recall is not None:
        writer.put("rcal", _recall_record(routing.recall))
    writer.put("prop", strings.encode_mapping(routing.properties))
    writer.finish()
    return out.getvalue()


def decode(data: bytes) -> Routing:
    """Return the routing, every array read-only; typed errors for anything not as it should be."""
    reader = ContainerReader(io.BytesIO(data), KIND)
    head = reader.record("head", HEAD)
    partitions = int(head["partitions"])
    algorithm = strings.decode(reader.read("algo"), f"{KIND} blob, section algo")
    if len(algorithm) != 1:
        raise BlobFormatError(f"{KIND} blob: {len(algorithm)} algorithms")
    routing = Routing(
        metric=metrics.name(int(head["metric"]), f"{KIND} blob"),
        algorithm=algorithm[0],
        dimension=int(head["dimension"]),
        centroids=reader.array("cent", "<f4", (partitions, int(head["centroid_dimension"]))),
        partition_shards=reader.array("psha", "<u4", (partitions,)),
        partition_rows=reader.array("prow", "<u8", (partitions,)),
        partition_radii=reader.array("prad", "<f4", (partitions,)),
        norm_bound=float(head["norm_bound"]),
        shards=shards_of(reader, int(head["shards"])),
        search_width=int(head["search_width"]),
        probe_partitions=int(head["probe_partitions"]),
        recall=_recall(reader),
        properties=strings.decode_mapping(reader.read("prop"), f"{KIND} blob, section prop"),
    )
    _check(routing)
    return routing


def _shard_records(shards: tuple[ShardEntry, ...]) -> NDArray[Any]:
    records = np.zeros(len(shards), SHARD)
    for record, shard in zip(records, shards, strict=True):
        record["shard_id"] = shard.shard_id
        record["kind"] = _SHARD_KINDS.index(shard.kind)
        record["rows"] = shard.rows
        record["bytes"] = shard.bytes
        record["tombstones"] = shard.tombstones
    return records


def shards_of(reader: ContainerReader, count: int) -> tuple[ShardEntry, ...]:
    """Return a blob's shards; `BlobFormatError` if there are not as many as its head says."""
    records = reader.array("shrd", SHARD, (count,))
    files = strings.decode(reader.read("file"), f"{KIND} blob, section file")
    if len(files) != count:
        raise BlobFormatError(f"{KIND} blob: {len(files)} files for {count} shards")
    if count and int(records["kind"].max()) >= len(_SHARD_KINDS):
        raise BlobFormatError(f"{KIND} blob: unknown shard kind {int(records['kind'].max())}")
    return tuple(
        ShardEntry(
            shard_id=shard_id,
            file=file,
            rows=rows,
            bytes=size,
            tombstones=tombstones,
            kind=_SHARD_KINDS[kind],
        )
        for (shard_id, kind, rows, size, tombstones), file in zip(
            records.tolist(), files, strict=True
        )
    )


def _recall_record(recall: Recall) -> NDArray[Any]:
    record = np.zeros((), RECALL)
    for name in RECALL.names or ():
        record[name] = getattr(recall, name)
    return record


def _recall(reader: ContainerReader) -> Recall | None:
    if "rcal" not in reader:
        return None
    record = reader.record("rcal", RECALL)
    recall = Recall(*record.tolist())
    if not all(0 <= x <= 1 for x in (recall.low, recall.recall, recall.high, recall.target)):
        raise BlobFormatError(f"{KIND} blob: a recall is not between 0 and 1")
    return recall


def _check(routing: Routing) -> None:
    """Refuse what a search would trip over, on writing as on reading."""
    partitions, width = routing.centroids.shape
    shard_ids = [shard.shard_id for shard in routing.shards]
    graphs = [shard.shard_id for shard in routing.shards if shard.kind == "graph"]
    problems = {
        f"centroids are {width} wide, vectors {routing.dimension}": width
        != metrics.search_dimension(routing.metric, routing.dimension),
        "a centroid is not finite": not np.isfinite(routing.centroids).all(),
        "a radius is negative or NaN": not (routing.partition_radii >= 0).all(),
        "norm bound is negative or not finite": not 0 <= routing.norm_bound < np.inf,
        "the figures of partitions are of different lengths": {
            routing.partition_shards.shape,
            routing.partition_rows.shape,
            routing.partition_radii.shape,
        }
        != {(partitions,)},
        "a shard id is there twice": len(set(shard_ids)) != len(shard_ids),
        "a partition lies in no graph shard": not np.isin(
            routing.partition_shards, np.array(graphs, np.uint32)
        ).all(),
        "a shard has more tombstones than rows": any(s.tombstones > s.rows for s in routing.shards),
        "more partitions are to be probed than there are": routing.probe_partitions > partitions,
    }
    for problem, there in problems.items():
        if there:
            raise BlobFormatError(f"{KIND} blob: {problem}")
