"""The coverage blob: which data files, and which of their rows, an index version covers.

A probe does not need it; comparing it with the files live in a snapshot tells what changed.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.blobs.encoding import bitmaps, strings
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter
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
        file_id: what locators call it; stable over versions and never reused.
        path: relative to the table's location if inside it, else absolute.
        size: bytes, as the manifest says.
        sequence_number: the file sequence number: that of the commit which added the file.
        rows: rows in the file, deleted ones included.
        row_groups: rows of each row group, in file order.
        deleted: positions in the file that were deleted at the base snapshot.
        skipped: positions not indexed because the vector was null, not finite or of wrong width.
    """

    file_id: int
    path: str
    size: int
    sequence_number: int
    rows: int
    row_groups: tuple[int, ...]
    deleted: BitMap
    skipped: BitMap


class CoveredFiles(Sequence[CoveredFile]):
    """Covered files by column; a `CoveredFile` is made when it is asked for.

    An object for each of 100,000 files, with its bitmaps, would cost more than all else that a
    comparison with the live files does.

    Attributes:
        records: (n,) of `FILE`, of which the lengths of bitmaps mean nothing.
        paths: one per file, as `CoveredFile.path`.
        file_ids: (n,) int64, ascending.
        sizes: (n,) int64, bytes.
        sequence_numbers: (n,) int64.
        rows: (n,) int64.
        deleted: by place in this sequence, the bitmaps that are not empty.
        skipped: as above.
        group_counts: (n,) int64, row groups of each file.
        all_row_groups: (g,) uint32, rows of each row group, in the order of files.
    """

    def __init__(
        self,
        records: NDArray[Any],
        paths: tuple[str, ...],
        row_groups: NDArray[np.uint32],
        deleted: Mapping[int, BitMap],
        skipped: Mapping[int, BitMap],
    ) -> None:
        self.records = records
        self.paths = paths
        self.file_ids = records["file_id"].astype(np.int64)
        self.sizes = records["size"].astype(np.int64)
        self.sequence_numbers = records["sequence_number"].astype(np.int64)
        self.rows = records["rows"].astype(np.int64)
        self.deleted = deleted
        self.skipped = skipped
        self.group_counts = records["row_groups"].astype(np.int64)
        self.all_row_groups = row_groups
        self._group_ends = np.cumsum(self.group_counts)

    @classmethod
    def of(cls, files: Sequence[CoveredFile]) -> "CoveredFiles":
        """Return the files by column, in order of their ids."""
        if isinstance(files, CoveredFiles):
            return files
        ordered = sorted(files, key=lambda file: file.file_id)
        records = np.zeros(len(ordered), FILE)
        for name in ("file_id", "size", "sequence_number", "rows"):
            records[name] = [getattr(file, name) for file in ordered]
        records["row_groups"] = [len(file.row_groups) for file in ordered]
        return cls(
            records,
            tuple(file.path for file in ordered),
            np.array([rows for file in ordered for rows in file.row_groups], "<u4"),
            {place: file.deleted for place, file in enumerate(ordered) if file.deleted},
            {place: file.skipped for place, file in enumerate(ordered) if file.skipped},
        )

    @cached_property
    def indexed_rows(self) -> int:
        """Number of rows that are neither deleted nor skipped."""
        return int(self.rows.sum()) - int(self.left_out.sum())

    @cached_property
    def left_out(self) -> NDArray[np.int64]:
        """(n,) int64, rows of each file that are deleted or skipped."""
        counts = np.zeros(len(self), np.int64)
        for place, deleted in self.deleted.items():
            counts[place] = len(deleted)
        for place, skipped in self.skipped.items():
            counts[place] = len(skipped | self.deleted.get(place, BitMap()))
        return counts

    def take(self, places: NDArray[np.int64]) -> "CoveredFiles":
        """Return the files at (m,) places, in the order given."""
        counts = self.group_counts[places]
        starts = self._group_ends[places] - counts
        steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        here = {place: at for at, place in enumerate(places.tolist())}
        return CoveredFiles(
            self.records[places],
            tuple(self.paths[place] for place in places.tolist()),
            self.all_row_groups[np.repeat(starts, counts) + steps],
            {here[place]: bits for place, bits in self.deleted.items() if place in here},
            {here[place]: bits for place, bits in self.skipped.items() if place in here},
        )

    def merged(self, others: "CoveredFiles") -> "CoveredFiles":
        """Return these files and others, of other ids, in order of their ids."""
        count = len(self)
        both = CoveredFiles(
            np.concatenate([self.records, others.records]),
            self.paths + others.paths,
            np.concatenate([self.all_row_groups, others.all_row_groups]),
            {**self.deleted, **{count + place: bits for place, bits in others.deleted.items()}},
            {**self.skipped, **{count + place: bits for place, bits in others.skipped.items()}},
        )
        return both.take(np.argsort(both.file_ids))

    def row_groups(self, place: int) -> NDArray[np.uint32]:
        """Return the rows of each row group of the file at a place."""
        start = int(self._group_ends[place - 1]) if place else 0
        return self.all_row_groups[start : int(self._group_ends[place])]

    def __len__(self) -> int:  # noqa: D105
        return len(self.paths)

    @overload
    def __getitem__(self, place: int) -> CoveredFile: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[CoveredFile, ...]: ...

    def __getitem__(self, place: int | slice) -> CoveredFile | tuple[CoveredFile, ...]:  # noqa: D105
        if isinstance(place, slice):
            return tuple(self[at] for at in range(*place.indices(len(self))))
        place = range(len(self))[place]
        return CoveredFile(
            file_id=int(self.file_ids[place]),
            path=self.paths[place],
            size=int(self.sizes[place]),
            sequence_number=int(self.sequence_numbers[place]),
            rows=int(self.rows[place]),
            row_groups=tuple(self.row_groups(place).tolist()),
            deleted=self.deleted.get(place, BitMap()),
            skipped=self.skipped.get(place, BitMap()),
        )

    def __eq__(self, other: object) -> bool:  # noqa: D105
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]  # as of a list: equality is by content


@dataclass(frozen=True)
class Coverage:
    """What an index version covers.

    Attributes:
        base_snapshot_id: the snapshot whose rows are covered.
        files: data files of the base snapshot, in order of their ids when read from a blob.
        manifests: paths of the base snapshot's manifests, which list just `files` and the deletes
            that `CoveredFile.deleted` holds; empty where that is not known. A comparison then
            reads every manifest of the other snapshot.
    """

    base_snapshot_id: int
    files: Sequence[CoveredFile]
    manifests: tuple[str, ...]

    @cached_property
    def columns(self) -> CoveredFiles:
        """The files by column."""
        return CoveredFiles.of(self.files)


def encode(coverage: Coverage) -> bytes:
    """Return the blob; files are written in order of their ids, which must differ."""
    head = np.zeros((), HEAD)
    head["base_snapshot_id"] = coverage.base_snapshot_id
    head["files"] = len(coverage.files)
    out = io.BytesIO()
    writer = ContainerWriter(out, KIND)
    writer.put("head", head)
    put_files(writer, coverage.columns)
    writer.put("mani", strings.encode(coverage.manifests))
    writer.finish()
    return out.getvalue()


def decode(data: bytes) -> Coverage:
    """Return the coverage; typed errors for anything not as it should be."""
    reader = ContainerReader(io.BytesIO(data), KIND)
    head = reader.record("head", HEAD)
    return Coverage(
        base_snapshot_id=int(head["base_snapshot_id"]),
        files=read_files(reader, int(head["files"])),
        manifests=strings.decode(reader.read("mani"), f"{KIND} blob, section mani"),
    )


def put_files(writer: ContainerWriter, files: CoveredFiles) -> None:
    """Write the sections of files, `file` to `bits`, in order of their ids, which must differ."""
    records = files.records.copy()
    records["deleted_length"] = records["skipped_length"] = 0
    _check(records, files.all_row_groups)
    bits: list[bytes] = []
    for place in sorted({*files.deleted, *files.skipped}):
        for name, bitmaps_of in (("deleted", files.deleted), ("skipped", files.skipped)):
            bits.append(_bits(bitmaps_of.get(place, BitMap())))
            records[place][f"{name}_length"] = len(bits[-1])
    writer.put("file", records)
    writer.put("path", strings.encode(files.paths))
    writer.put("rgrp", files.all_row_groups.astype("<u4"))
    writer.put("bits", b"".join(bits))


def read_files(reader: ContainerReader, count: int) -> CoveredFiles:
    """Read the sections that `put_files` writes; errors as of `decode`."""
    kind = reader.kind
    records = reader.array("file", FILE, (count,))
    paths = strings.decode(reader.read("path"), f"{kind} blob, section path")
    if len(paths) != count:
        raise BlobFormatError(f"{kind} blob: {len(paths)} paths for {count} files")
    groups = reader.array("rgrp", "<u4", (int(records["row_groups"].sum(dtype=np.uint64)),))
    _check(records, groups)
    deleted, skipped = _bitmaps(records, reader.read("bits"))
    return CoveredFiles(records, paths, groups, deleted, skipped)


def _bitmaps(records: NDArray[Any], bits: bytes) -> tuple[dict[int, BitMap], dict[int, BitMap]]:
    """Return, by place of the file, the deleted and the skipped positions that there are."""
    lengths = np.stack([records["deleted_length"], records["skipped_length"]], axis=1).ravel()
    ends = np.cumsum(lengths, dtype=np.uint64)
    if (int(ends[-1]) if len(ends) else 0) != len(bits):
        raise BlobFormatError(f"{KIND} blob: lengths of bitmaps do not sum up to section bits")
    found: tuple[dict[int, BitMap], dict[int, BitMap]] = ({}, {})
    for number in np.flatnonzero(lengths).tolist():
        place, which = divmod(number, 2)
        end = int(ends[number])
        data = bits[end - int(lengths[number]) : end]
        record = records[place]
        where = f"{KIND} blob, file {int(record['file_id'])}"
        bitmap = bitmaps.decode(data, int(record["rows"]), where)
        if bitmap:
            found[which][place] = bitmap
    return found


def _bits(bitmap: BitMap) -> bytes:
    return bitmaps.encode(bitmap) if bitmap else b""


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
    if len(records) and int(records["size"].max()) > np.iinfo(np.int64).max:
        raise BlobFormatError(f"{KIND} blob: a file of {int(records['size'].max())} bytes")
