"""What a build's gate found, as routing blobs have it: a recall, and widths for further rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter
from puffin_ann.errors import BlobFormatError

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
WIDER = np.dtype([("rows", "<u4"), ("search_width", "<u4"), ("probe_partitions", "<u4")])

MOST_WIDER = 64
"""Records of searches for more rows, at most."""


@dataclass(frozen=True)
class Recall:
    """What the gate measured: mean recall@k over `queries`, its 95 % interval, and the target."""

    k: int
    queries: int
    recall: float
    low: float
    high: float
    target: float


@dataclass(frozen=True)
class Wider:
    """How widely to search for more rows than the gate's k, and how many cells to visit for it."""

    rows: int
    search_width: int
    probe_partitions: int


def put_recall(writer: ContainerWriter, recall: Recall) -> None:
    """Write the section of a recall."""
    record = np.zeros((), RECALL)
    for name in RECALL.names or ():
        record[name] = getattr(recall, name)
    writer.put("rcal", record)


def recall_in(reader: ContainerReader) -> Recall | None:
    """Return the recall that a blob has, if any; `BlobFormatError` if it can be none."""
    if "rcal" not in reader:
        return None
    recall = Recall(*reader.record("rcal", RECALL).tolist())
    if not all(0 <= x <= 1 for x in (recall.low, recall.recall, recall.high, recall.target)):
        raise BlobFormatError(f"{reader.kind} blob: a recall is not between 0 and 1")
    return recall


def put_wider(writer: ContainerWriter, wider: tuple[Wider, ...]) -> None:
    """Write the section of searches for more rows."""
    records = np.zeros(len(wider), WIDER)
    for record, one in zip(records, wider, strict=True):
        for name in WIDER.names or ():
            record[name] = getattr(one, name)
    writer.put("wide", records)


def wider_in(reader: ContainerReader) -> tuple[Wider, ...]:
    """Return what a blob says of searches for more rows; `BlobFormatError` if it cannot be."""
    if "wide" not in reader:
        return ()
    length = reader.sections["wide"].length
    if length % WIDER.itemsize or length > MOST_WIDER * WIDER.itemsize:
        raise BlobFormatError(f"{reader.kind} blob: section wide of {length} bytes")
    records: NDArray[Any] = np.frombuffer(reader.read("wide"), WIDER)
    return tuple(Wider(*record) for record in records.tolist())


def is_wider(recall: Recall | None, width: int, probe: int, wider: tuple[Wider, ...]) -> bool:
    """Tell whether searches for more rows are for ever more of them, and no narrower.

    Args:
        recall: what was measured.
        width: of a search for the rows of it.
        probe: cells that it visits.
        wider: searches for more rows.
    """
    if not wider or recall is None:
        return not wider
    least = Wider(recall.k, width, probe)
    return all(
        after.rows > before.rows
        and after.search_width >= before.search_width
        and after.probe_partitions >= before.probe_partitions
        for before, after in zip((least, *wider), wider, strict=False)
    )
