"""Say what a blob holds without loading its arrays, for `puffin-ann inspect`."""

from dataclasses import asdict
from typing import Any, BinaryIO

import numpy as np

from puffin_ann.blobs.changes import column_changes, coverage_changes, tombstone_changes
from puffin_ann.blobs.encoding import metrics, strings
from puffin_ann.blobs.encoding.container import ContainerReader
from puffin_ann.blobs.shards import columns, delta, graph, hnsw, identities, ivf, rows, rows_v1
from puffin_ann.blobs.version import centroid, coverage, directory, partitions, routing, tombstones
from puffin_ann.blobs.version.gate import wider_in
from puffin_ann.foreign_json import parse

OURS: dict[str, tuple[str, np.dtype[Any]]] = {
    routing.TYPE: (routing.KIND, routing.HEAD),
    partitions.TYPE: (partitions.KIND, partitions.HEAD),
    coverage.TYPE: (coverage.KIND, coverage.HEAD),
    coverage_changes.TYPE: (coverage_changes.KIND, coverage_changes.HEAD),
    graph.TYPE: (graph.KIND, graph.HEAD),
    rows.TYPE: (rows.KIND, rows.HEAD),
    rows_v1.TYPE: (rows.KIND, rows_v1.HEAD),
    identities.TYPE: (identities.KIND, identities.HEAD),
    columns.TYPE: (columns.KIND, columns.HEAD),
    column_changes.TYPE: (column_changes.KIND, column_changes.HEAD),
    tombstones.TYPE: (tombstones.KIND, tombstones.HEAD),
    tombstone_changes.TYPE: (tombstone_changes.KIND, tombstone_changes.HEAD),
    centroid.TYPE: (centroid.KIND, centroid.HEAD),
    delta.TYPE: (delta.KIND, graph.HEAD),
    directory.TYPE: (directory.KIND, directory.HEAD),
    hnsw.TYPE: (hnsw.KIND, hnsw.HEAD),
    ivf.TYPE: (ivf.KIND, ivf.HEAD),
}
"""Blob types of ours: their kind in the container and the record of their section `head`."""

FOREIGN = {
    "apache-datasketches-theta-v1": "distinct-value sketch of Iceberg's statistics",
    "deletion-vector-v1": "deleted rows of a data file (Iceberg v3)",
    "ndv-long-little-endian": "distinct-value count of Puffin's first spec",
}
"""Blob types of Iceberg's own."""

PAPER = ("flockdb-ann-", "ann-")
"""How the paper names its blob types, whose bytes it does not fix."""


def describe(type: str, source: BinaryIO) -> dict[str, Any]:
    """Return what is known of a blob of a type, whose content `source` holds.

    Always has `type` and `known`; ours has `version`, `bytes`, `head` (the fields of its section
    `head` by name) and `sections` (kind, offset, length in bytes), others a `note`. A routing blob
    has its `shards`, too, `wider` for how more rows than the gate's k are searched for, and the
    `trials` of engines by which `algorithm: auto` chose. Where its partitions are in a blob of
    their own, `head` tells how many there are, and are probed.

    Raises:
        FormatError: The blob claims one of our types and is broken.
    """
    if type not in OURS:
        return {"type": type, "known": type in FOREIGN, "note": _note(type)}
    _, layout = OURS[type]
    reader = sections_of(type, source)
    kind = reader.kind
    return {
        "type": type,
        "known": True,
        "version": f"{reader.major}.{reader.minor}",
        "bytes": reader.length,
        "head": {**_head(reader, layout), **_apart(reader)},
        "sections": [
            {"kind": section.kind, "offset": section.offset, "length": section.length}
            for section in reader.sections.values()
        ],
        **({**_shards(reader), **_trials(reader)} if kind == routing.KIND else {}),
    }


def sections_of(type: str, source: BinaryIO) -> ContainerReader:
    """Return the sections of a blob of one of our types, whose name says the format's version.

    Raises:
        FormatError: it is not such a blob.
    """
    major = int(type.rpartition("-v")[2])
    return ContainerReader(source, OURS[type][0], majors=(major,))


def _shards(reader: ContainerReader) -> dict[str, Any]:
    """Return what a routing blob says of each shard, and of more rows; few beside the centroids."""
    shards = routing.shards_of(reader, int(reader.record("head", routing.HEAD)["shards"]))
    return {
        "shards": [asdict(shard) for shard in shards],
        "wider": [asdict(wider) for wider in wider_in(reader)],
    }


def _apart(reader: ContainerReader) -> dict[str, Any]:
    """Return what a record of its own says where the partitions are in another blob."""
    if reader.kind != routing.KIND:
        return {}
    apart, probe_partitions = routing.apart_in(reader, reader.record("head", routing.HEAD))
    if apart is None:
        return {}
    return {"partitions": apart.count, "probe_partitions": probe_partitions}


def _trials(reader: ContainerReader) -> dict[str, Any]:
    """Return what engines did on a sample, if the build wrote that into the free properties."""
    properties = strings.decode_mapping(reader.read("prop"), f"{reader.kind} blob, section prop")
    try:
        trials = parse(properties.get("trials", "[]"))
    except ValueError:
        return {}
    if not isinstance(trials, list) or not all(isinstance(trial, dict) for trial in trials):
        return {}
    return {"trials": trials}


def _note(type: str) -> str:
    if type in FOREIGN:
        return FOREIGN[type]
    if type.startswith(PAPER):
        return "named as in the paper, which fixes no bytes: cannot be decoded"
    return "unknown type: carried over unread"


def _head(reader: ContainerReader, layout: np.dtype[Any]) -> dict[str, Any]:
    record = reader.record("head", layout)
    values = {
        name: record[name].tobytes().hex() if name == "digest" else record[name].item()
        for name in layout.names or ()
        if name not in ("reserved", "magic")
    }
    if "metric" in values:
        values["metric"] = metrics.name(values["metric"], f"{reader.kind} blob")
    return values
