"""Tables that are metadata alone: real ones of PyIceberg, in no catalog, with no file in any store.

For what decides by a table's snapshots, branches, tags, properties and statistics, and reads
nothing else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.types import LongType, NestedField

LOCATION = "s3://bucket/demo/words"
DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Snap:
    """A snapshot on `main`, the child of the one before it.

    Attributes:
        number: its id and its sequence number.
        at_ms: when it was committed, milliseconds since 1970.
        summary: what its summary says besides.
    """

    number: int
    at_ms: int
    summary: Mapping[str, str] = field(default_factory=dict)


def statistics(snapshot: int, path: str, *, bytes: int = 1000) -> StatisticsFile:
    """The statistics entry of a snapshot."""
    return StatisticsFile.model_validate(
        {
            "snapshot-id": snapshot,
            "statistics-path": path,
            "file-size-in-bytes": bytes,
            "file-footer-size-in-bytes": 100,
            "blob-metadata": [],
        }
    )


def table_of(
    snapshots: Iterable[Snap],
    entries: Iterable[StatisticsFile] = (),
    *,
    tags: Mapping[str, int] | None = None,
    alone: Iterable[Snap] = (),
    properties: Mapping[str, str] | None = None,
) -> Table:
    """A table with these snapshots, whose last one is the head of `main`; those `alone` are not."""
    line, off_main = list(snapshots), list(alone)
    refs: dict[str, Any] = {
        name: {"snapshot-id": number, "type": "tag"} for name, number in (tags or {}).items()
    }
    if line:
        refs["main"] = {"snapshot-id": line[-1].number, "type": "branch"}
    metadata = TableMetadataV2.model_validate(
        {
            "format-version": 2,
            "location": LOCATION,
            "last-column-id": 1,
            "last-updated-ms": line[-1].at_ms if line else 0,
            "last-sequence-number": max((snap.number for snap in [*line, *off_main]), default=0),
            "schemas": [Schema(NestedField(1, "id", LongType()))],
            "current-schema-id": 0,
            "partition-specs": [UNPARTITIONED_PARTITION_SPEC],
            "properties": dict(properties or {}),
            "current-snapshot-id": line[-1].number if line else None,
            "snapshots": [
                {
                    "snapshot-id": snap.number,
                    "parent-snapshot-id": before.number if before else None,
                    "sequence-number": snap.number,
                    "timestamp-ms": snap.at_ms,
                    "manifest-list": f"{LOCATION}/metadata/snap-{snap.number}.avro",
                    "summary": {"operation": "append", **snap.summary},
                    "schema-id": 0,
                }
                for snap, before in [
                    *zip(line, [None, *line], strict=False),
                    *((snap, None) for snap in off_main),
                ]
            ],
            "refs": refs,
            "statistics": list(entries),
        }
    )
    where = f"{LOCATION}/metadata/v{len(line)}.metadata.json"
    catalog: Any = SimpleNamespace(name="catalog", properties={}, table_name_from=lambda name: name)
    return Table(("catalog", "demo", "words"), metadata, where, PyArrowFileIO(), catalog)
