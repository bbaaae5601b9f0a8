"""Take checked fields, and the locations it names, from the JSON of an Iceberg metadata file."""

from collections.abc import Iterator, Mapping
from typing import Any

from puffin_ann.foreign_json import long_of, object_of, objects_of, text_of
from puffin_ann.lake.metadata.registered import NAMED_BY

_LISTS = ("snapshots", "statistics", "partition-statistics", "metadata-log")


def check_fields(document: object) -> dict[str, Any]:
    """Return a metadata file whose fields, as far as we take them, are what the spec says.

    Lists that are absent or null are there, and empty; entries of them have their ids and paths.

    Raises:
        ValueError: it is not a JSON object, or one of the fields is something else.
    """
    found = dict(object_of(document))
    found |= {name: objects_of(found, name) for name in _LISTS}
    for snapshot in found["snapshots"]:
        _check_snapshot(snapshot)
    for name in ("statistics", "partition-statistics"):
        for entry in found[name]:
            long_of(entry.get("snapshot-id"))
            text_of(entry.get("statistics-path"))
    for entry in found["metadata-log"]:
        long_of(entry.get("timestamp-ms"))
        text_of(entry.get("metadata-file"))
    return found


def _check_snapshot(snapshot: Mapping[str, Any]) -> None:
    long_of(snapshot.get("snapshot-id"))
    for name in ("sequence-number", "timestamp-ms"):
        long_of(snapshot.get(name, 0))  # format version 1 has no sequence numbers
    text_of(snapshot.get("manifest-list", ""))  # format version 1 may list manifests instead
    summary = snapshot.get("summary")
    if summary is not None:
        text_of(object_of(summary).get(NAMED_BY, ""))


def find_locations(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a metadata file that was checked names besides its log.

    Those are statistics, partition statistics, manifest lists, and what summaries of index
    snapshots name.
    """
    for kind in ("statistics", "partition-statistics"):
        for entry in document[kind]:
            yield entry["statistics-path"]
    for snapshot in document["snapshots"]:
        if "manifest-list" in snapshot:
            yield snapshot["manifest-list"]
        if NAMED_BY in (snapshot.get("summary") or {}):
            yield snapshot["summary"][NAMED_BY]
