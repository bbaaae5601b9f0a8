"""The coverage blob: which data files, and which of their rows, an index version covers.

A probe does not need it; comparing it with the files live in a snapshot tells what changed.
"""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.blobs import bitmaps, strings
from puffin_ann.blobs.container import ContainerReader, ContainerWriter
from puffin_ann.errors import BlobFormatError

KIND = "covr"
TYPE = "puffin-ann-coverage-v1"

HEAD = np.dtype([("base_snapshot_id", "<i8"), ("files", "<u4"), ("reserved", "<u4")])
FILE = np.dtype(
    [
        ("file_id", "<u4"),
        ("row_groups", "<u4"),
        ("size", "<u8"),
        ("sequence_number", "<i8"),
        ("rows", "<u8"),
        ("deleted_length", "<u4"),
        ("skipped_length", "<u4"),
    ]
)
MAX_ROWS = 1 << 32
"""Rows of one data file: positions in it are 32-bit."""


@dataclass(frozen=True)
class CoveredFile:
    """A data file of the base snapshot.

    Attributes:
        file_id: What locators call it; stable over versions and never reused.
        path: Relative to the table's location if inside it, else absolute.
        size: Bytes, as the manifest says.
        sequence_number: The file's data sequence number.
        rows: Rows in the file, deleted ones included.
        row_groups: Rows of each row group, in file order.
        deleted: Positions in the file that were deleted at the base snapshot.
        skipped: Positions not indexed because the vector was null, not finite or of wrong width.

    """

    file_id: int
    path: str
    size: int
    sequence_number: int
    rows: int
    row_groups: tuple[int, ...]
    deleted: BitMap
    skipped: BitMap


@dataclass(frozen=True)
class Coverage:
    """Covered files in order of their ids, and the manifests of the base snapshot."""

    base_snapshot_id: int
    files: tuple[CoveredFile, ...]
    manifests: tuple[str, ...]


def encode(coverage: Coverage) -> bytes:
    """Return the blob; files are written in order of their ids, which must differ."""
    files = sorted(coverage.files, key=lambda file: file.file_id)
    records = np.zeros(len(files), FILE)
    bits: list[bytes] = []
    for record, file in zip(records, files, strict=True):
        deleted, skipped = _bits(file.deleted), _bits(file.skipped)
        bits += [deleted, skipped]
        record["file_id"] = file.file_id
        record["row_groups"] = len(file.row_groups)
        record["size"] = file.size
        record["sequence_number"] = file.sequence_number
        record["rows"] = file.rows
        record["deleted_length"] = len(deleted)
        record["skipped_length"] = len(skipped)
    row_groups = np.array([rows for file in files for rows in file.row_groups], "<u4")
    _check(records, row_groups)
    head = np.zeros((), HEAD)
    head["base_snapshot_id"] = coverage.base_snapshot_id
    head["files"] = len(files)

    out = io.BytesIO()
    writer = ContainerWriter(out, KIND)
    writer.put("head", head)
    writer.put("file", records)
    writer.put("path", strings.encode(file.path for file in files))
    writer.put("rgrp", row_groups)
    writer.put("bits", b"".join(bits))
    writer.put("mani", strings.encode(coverage.manifests))
    writer.finish()
    return out.getvalue()


def decode(data: bytes) -> Coverage:
    """Return the coverage; typed errors for anything not as it should be."""
    reader = ContainerReader(io.BytesIO(data), KIND)
    head = reader.record("head", HEAD)
    count = int(head["files"])
    records = reader.array("file", FILE, (count,))
    paths = strings.decode(reader.read("path"), f"{KIND} blob, section path")
    if len(paths) != count:
        raise BlobFormatError(f"{KIND} blob: {len(paths)} paths for {count} files")
    groups = reader.array("rgrp", "<u4", (int(records["row_groups"].sum(dtype=np.uint64)),))
    _check(records, groups)
    return Coverage(
        base_snapshot_id=int(head["base_snapshot_id"]),
        files=_files(records, paths, groups.tolist(), reader.read("bits")),
        manifests=strings.decode(reader.read("mani"), f"{KIND} blob, section mani"),
    )


def _files(
    records: NDArray[Any], paths: tuple[str, ...], groups: list[int], bits: bytes
) -> tuple[CoveredFile, ...]:
    lengths = records["deleted_length"].astype(np.uint64) + records["skipped_length"]
    if int(lengths.sum()) != len(bits):
        raise BlobFormatError(f"{KIND} blob: lengths of bitmaps do not sum up to section bits")
    files = []
    group = bit = 0
    for record, path in zip(records.tolist(), paths, strict=True):
        file_id, group_count, size, sequence_number, rows, deleted_length, skipped_length = record
        middle = bit + deleted_length
        end = middle + skipped_length
        where = f"{KIND} blob, file {file_id}"
        files.append(
            CoveredFile(
                file_id=file_id,
                path=path,
                size=size,
                sequence_number=sequence_number,
                rows=rows,
                row_groups=tuple(groups[group : group + group_count]),
                deleted=_bitmap(bits[bit:middle], rows, where),
                skipped=_bitmap(bits[middle:end], rows, where),
            )
        )
        group += group_count
        bit = end
    return tuple(files)


def _bits(bitmap: BitMap) -> bytes:
    return bitmaps.encode(bitmap) if bitmap else b""


def _bitmap(data: bytes, rows: int, where: str) -> BitMap:
    return bitmaps.decode(data, rows, where) if data else BitMap()


def _check(records: NDArray[Any], groups: NDArray[np.uint32]) -> None:
    ids = records["file_id"]
    if np.any(ids[1:] <= ids[:-1]):
        raise BlobFormatError(f"{KIND} blob: file ids are not ascending")
    sums = np.concatenate([[0], np.cumsum(groups, dtype=np.uint64)]).astype(np.uint64)
    ends = np.cumsum(records["row_groups"], dtype=np.uint64)
    starts = ends - records["row_groups"]
    wrong = np.flatnonzero(sums[ends] - sums[starts] != records["rows"])
    if len(wrong):
        raise BlobFormatError(
            f"{KIND} blob: row groups of file {int(ids[wrong[0]])} do not sum up to its rows"
        )
    if len(records) and int(records["rows"].max()) > MAX_ROWS:
        raise BlobFormatError(f"{KIND} blob: a file has more than {MAX_ROWS} rows")
