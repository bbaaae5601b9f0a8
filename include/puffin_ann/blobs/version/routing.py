"""The routing blob: each shard's figures, and the cells, or which blob holds those.

A probe reads this blob, and the partitions blob beside it, to know which shards to ask. Files
written before there was one have the cells within; they are read, and can still be written.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import metrics, strings
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter, fingerprint
from puffin_ann.blobs.encoding.stored_vectors import FORMS, Form
from puffin_ann.blobs.version import partitions
from puffin_ann.blobs.version.gate import (
    Recall,
    Wider,
    is_wider,
    put_recall,
    put_wider,
    recall_in,
    wider_in,
)
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.errors import BlobFormatError
from puffin_ann.foreign_json import parse

KIND = "rout"
RUN_ID = "run-id"
"""The property that names the run which published the version."""
DECLARATION = "declaration"
"""The property that has the declaration in force when the version was published, as JSON."""
TYPE = "puffin-ann-routing-v1"

MINOR, MINOR_WIDER = 1, 2
"""Minor version of a blob whose cells are in another one, and of one that tells how to search for
more rows; else 0."""

WITH = " with vectors "
"""Between algorithm and form, where vectors are not float32: readers that know no other forms take
it for the name of an algorithm that they do not know, and say so."""

HEAD = np.dtype(
    [
        ("metric", "<u4"),
        ("dimension", "<u4"),
        ("centroid_dimension", "<u4"),
        ("partitions", "<u4"),
        ("shards", "<u4"),
        ("search_width", "<u4"),
        ("probe_partitions", "<u4"),
        ("scan_partitions", "<u4"),
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
APART = np.dtype([("partitions", "<u4"), ("probe_partitions", "<u4"), ("digest", "V32")])

ShardKind = Literal["graph", "delta"]
"""The format's words: a *graph* is any shard that is no delta, whatever its engine."""

_SHARD_KINDS: tuple[ShardKind, ...] = ("graph", "delta")


@dataclass(frozen=True)
class ShardEntry:
    """One shard: the Puffin file its blobs are in (empty: this one) and what it holds.

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
class Apart:
    """Cells in a blob of their own: how many, and its fingerprint as hexadecimal digits."""

    count: int
    digest: str


@dataclass(frozen=True, eq=False)
class Routing:
    """How to find the shards that may hold a query's neighbours.

    Attributes:
        metric: `"l2"`, `"cosine"` or `"ip"`.
        algorithm: name of the engine that built the shards.
        dimension: width of the indexed vectors.
        cells: themselves, or which blob has them: they are by far the most bytes, and whoever only
            asks for a shard's figures does not read them.
        norm_bound: largest vector norm, as the `ip` augmentation used it; 0 for other metrics.
        shards: the shards.
        search_width: beam width a search uses unless told otherwise.
        probe_partitions: cells a search visits unless told otherwise.
        scan_partitions: nearest cells whose rows a search compares where it has not the shards on
            local disk, to find as many neighbours; 0: not known.
        vectors: the form that shards store vectors in; some may have them as float32 all the same.
        wider: searches for more rows than the recall was measured with, ever more, as measured.
        recall: what the gate measured, if it did.
        properties: free text: the declaration, its fingerprint, the run id, stage seconds.
    """

    metric: str
    algorithm: str
    dimension: int
    cells: Partitions | Apart
    norm_bound: float
    shards: tuple[ShardEntry, ...]
    search_width: int
    probe_partitions: int
    recall: Recall | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    scan_partitions: int = 0
    vectors: Form = "float32"
    wider: tuple[Wider, ...] = ()

    @property
    def run_id(self) -> str:
        """The run that published the version; empty if the properties name none."""
        return self.properties.get(RUN_ID, "")

    @property
    def declared_column(self) -> str | None:
        """The name that the indexed column was declared by; None if none is recorded."""
        try:
            declared = parse(self.properties.get(DECLARATION, ""))
        except ValueError:
            return None
        found = declared.get("column") if isinstance(declared, dict) else None
        return found if isinstance(found, str) else None

    @property
    def measured(self) -> Recall | None:
        """The recall, unless no query could be asked: each row has too many that equal it."""
        return self.recall if self.recall and self.recall.queries else None

    @property
    def graph_ids(self) -> list[int]:
        """Ids of the shards that cells lie in."""
        return [shard.shard_id for shard in self.shards if shard.kind == "graph"]


def encode(routing: Routing) -> bytes:
    """Return the blob, with the cells or with what names them.

    Raises:
        BlobFormatError: the routing contradicts itself.
    """
    _check(routing)
    cells = routing.cells
    apart = cells if isinstance(cells, Apart) else None
    within = cells if isinstance(cells, Partitions) else _none(routing)
    head = np.zeros((), HEAD)
    head["metric"] = metrics.code(routing.metric)
    head["dimension"] = routing.dimension
    head["centroid_dimension"] = within.centroids.shape[1]
    head["partitions"] = within.count
    head["shards"] = len(routing.shards)
    head["search_width"] = routing.search_width
    head["probe_partitions"] = routing.probe_partitions if apart is None else 0
    head["scan_partitions"] = routing.scan_partitions
    head["norm_bound"] = routing.norm_bound

    out = io.BytesIO()
    minor = MINOR_WIDER if routing.wider else MINOR if apart is not None else 0
    writer = ContainerWriter(out, KIND, minor=minor)
    writer.put("head", head)
    form = "" if routing.vectors == "float32" else WITH + routing.vectors
    writer.put("algo", strings.encode([routing.algorithm + form]))
    partitions.put(within, writer)
    writer.put("shrd", _shard_records(routing.shards))
    writer.put("file", strings.encode(shard.file for shard in routing.shards))
    if routing.recall is not None:
        put_recall(writer, routing.recall)
    writer.put("prop", strings.encode_mapping(routing.properties))
    if apart is not None:
        writer.put("part", _apart_record(apart, routing.probe_partitions))
    if routing.wider:
        put_wider(writer, routing.wider)
    writer.finish()
    return out.getvalue()


def decode(data: bytes) -> Routing:
    """Return the routing, every array read-only; typed errors for anything not as it should be."""
    reader = ContainerReader(io.BytesIO(data), KIND)
    head = reader.record("head", HEAD)
    algorithm = strings.decode(reader.read("algo"), f"{KIND} blob, section algo")
    if len(algorithm) != 1:
        raise BlobFormatError(f"{KIND} blob: {len(algorithm)} algorithms")
    name, form = _form(algorithm[0])
    metric, dimension = metrics.name(int(head["metric"]), f"{KIND} blob"), int(head["dimension"])
    shape = int(head["partitions"]), int(head["centroid_dimension"])
    within = partitions.get(reader, metric, dimension, shape)
    apart, probe_partitions = apart_in(reader, head)
    routing = Routing(
        metric=metric,
        algorithm=name,
        dimension=dimension,
        cells=apart or within,
        norm_bound=float(head["norm_bound"]),
        shards=shards_of(reader, int(head["shards"])),
        search_width=int(head["search_width"]),
        probe_partitions=probe_partitions,
        recall=recall_in(reader),
        properties=strings.decode_mapping(reader.read("prop"), f"{KIND} blob, section prop"),
        scan_partitions=int(head["scan_partitions"]),
        vectors=form,
        wider=wider_in(reader),
    )
    partitions.check(within, KIND)
    _check(routing)
    return routing


def _form(algorithm: str) -> tuple[str, Form]:
    """Return the name of an algorithm, and the form of its vectors."""
    name, _, told = algorithm.partition(WITH)
    if not told:
        return algorithm, "float32"
    for form in FORMS:
        if told == form != "float32":
            return name, form
    raise BlobFormatError(f"{KIND} blob: vectors of form {told!r} are not known")


def split(routing: Routing) -> tuple[Routing, bytes]:
    """Return a routing that names its cells, and the blob that has them.

    Where it names them already, or has none, it comes back as it is, and no bytes.
    """
    cells = routing.cells
    if isinstance(cells, Apart) or not cells.count:
        return routing, b""
    data = partitions.encode(cells)
    apart = Apart(cells.count, fingerprint(io.BytesIO(data)))
    return replace(routing, cells=apart), data


def decode_cells(routing: Routing, data: bytes) -> Partitions:
    """Return the cells of a routing from a blob of their own.

    Raises:
        BlobFormatError: the blob is another than the routing names, or does not fit it.
        FormatError: the blob is not sound.
    """
    apart = routing.cells
    if not isinstance(apart, Apart):
        raise BlobFormatError(f"{KIND} blob: names no {partitions.KIND} blob")
    if fingerprint(io.BytesIO(data)) != apart.digest:
        raise BlobFormatError(f"{partitions.KIND} blob: is not the one that the routing blob names")
    found = partitions.decode(data)
    held = found.count, found.dimension, found.metric
    said = apart.count, routing.dimension, routing.metric
    if held != said:
        raise BlobFormatError(
            "{} blob: {} partitions of {} dimensions for {}; ".format(partitions.KIND, *held)
            + "the routing blob says {} of {} for {}".format(*said)
        )
    _check(replace(routing, cells=found))
    return found


def _none(routing: Routing) -> Partitions:
    return partitions.none(routing.metric, routing.dimension)


def _apart_record(apart: Apart, probe_partitions: int) -> NDArray[Any]:
    record = np.zeros((), APART)
    record["partitions"] = apart.count
    record["probe_partitions"] = probe_partitions
    record["digest"] = np.void(bytes.fromhex(apart.digest))
    return record


def apart_in(reader: ContainerReader, head: np.void) -> tuple[Apart | None, int]:
    """Return what a blob says of the partitions blob, and the cells that a search visits."""
    if "part" not in reader:
        return None, int(head["probe_partitions"])
    record = reader.record("part", APART)
    count = int(record["partitions"])
    if int(head["partitions"]) or int(head["probe_partitions"]) or not count:
        raise BlobFormatError(
            f"{KIND} blob: {int(head['partitions'])} partitions within, {count} in another blob"
        )
    return Apart(count, record["digest"].tobytes().hex()), int(record["probe_partitions"])


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


def _check(routing: Routing) -> None:
    """Refuse what a search would trip over, on writing as on reading."""
    if isinstance(routing.cells, Partitions):
        _check_cells(routing, routing.cells)
    shard_ids = [shard.shard_id for shard in routing.shards]
    problems = {
        "norm bound is negative or not finite": not 0 <= routing.norm_bound < np.inf,
        "a shard id is there twice": len(set(shard_ids)) != len(shard_ids),
        "a shard has more tombstones than rows": any(s.tombstones > s.rows for s in routing.shards),
        "more partitions are to be probed than there are": routing.probe_partitions
        > routing.cells.count,
        "searches for more rows are no wider": not is_wider(
            routing.recall, routing.search_width, routing.probe_partitions, routing.wider
        ),
        "a search for more rows probes more partitions than there are": any(
            wider.probe_partitions > routing.cells.count for wider in routing.wider
        ),
    }
    _refuse(problems)


def _check_cells(routing: Routing, cells: Partitions) -> None:
    partitions.check(cells, KIND)
    problems = {
        "the partitions are of another metric or dimension": (cells.metric, cells.dimension)
        != (routing.metric, routing.dimension),
        "a partition belongs to no graph shard": not np.isin(
            cells.shards, np.array(routing.graph_ids, np.uint32)
        ).all(),
    }
    _refuse(problems)


def _refuse(problems: Mapping[str, Any]) -> None:
    for problem, there in problems.items():
        if there:
            raise BlobFormatError(f"{KIND} blob: {problem}")
