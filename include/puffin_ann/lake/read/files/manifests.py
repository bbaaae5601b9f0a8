"""Read manifest lists and manifests, and of those only the fields we use.

PyIceberg reads both with the v2 schemas, which have neither `first_row_id` nor
`referenced_data_file`, and decodes the column statistics of every file, which are most of a
manifest's bytes. We hand its Avro reader schemas of our own: what they do not name is skipped.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import IntEnum

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
)

from puffin_ann.lake.read.avro.safe_avro import records_of
from puffin_ann.lake.read.errors import AVRO, reading

DELETE_FILE_PATH_FIELD_ID = 2147483546
"""Field id of `file_path` in position-delete files (Iceberg spec, reserved field ids)."""


class FileContent(IntEnum):
    """What the rows of a file are, as manifests number it."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest as its list names it.

    `first_row_id` is set in v3 tables only. `files` and `rows` count live entries and the rows of
    their files; None where a v1 list does not say.
    """

    path: str
    holds_deletes: bool
    sequence_number: int
    spec_id: int
    first_row_id: int | None
    files: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Statistics:
    """What an entry tells of the columns of its file, by their ids; None where it does not.

    Bounds are in Iceberg's single-value serialization, and may be truncated.
    """

    values: Mapping[int, int] | None
    nulls: Mapping[int, int] | None
    nans: Mapping[int, int] | None
    lower: Mapping[int, bytes] | None
    upper: Mapping[int, bytes] | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A live entry of a manifest; what it inherits from the manifest is filled in.

    `sequence_number` is the data sequence number, `file_sequence_number` the one of the commit
    that added the file; both are 0 in v1 tables. `path_bounds` are the lowest and highest data
    file path named by a position-delete file, None where unknown (bounds may be truncated).
    `equality_ids` are the field ids of the columns by which an equality-delete file deletes rows.
    `statistics` are those of a data file, None unless they were asked for.
    """

    content: FileContent
    path: str
    file_format: str
    partition: tuple[object, ...]
    spec_id: int
    rows: int
    size: int
    sequence_number: int
    file_sequence_number: int
    encrypted: bool
    first_row_id: int | None
    referenced_data_file: str | None
    content_offset: int | None
    content_size: int | None
    path_bounds: tuple[bytes, bytes] | None
    statistics: Statistics | None = None
    equality_ids: tuple[int, ...] = ()


def _by_column(field_id: int, name: str, key_id: int, kind: PrimitiveType) -> NestedField:
    by_column = MapType(key_id=key_id, key_type=IntegerType(), value_id=key_id + 1, value_type=kind)
    return NestedField(field_id, name, by_column, required=False)


_BOUNDS = (
    _by_column(125, "lower_bounds", 126, BinaryType()),
    _by_column(128, "upper_bounds", 129, BinaryType()),
)
_STATISTICS = (
    _by_column(109, "value_counts", 119, LongType()),
    _by_column(110, "null_value_counts", 121, LongType()),
    _by_column(137, "nan_value_counts", 138, LongType()),
    *_BOUNDS,
)


_EQUALITY_IDS = NestedField(
    # PyIceberg writes long where the spec has int, which is read as long, too.
    135,
    "equality_ids",
    ListType(136, LongType(), element_required=True),
    required=False,
)


def _schema(*further: NestedField) -> Schema:
    file = StructType(
        # v1 manifests have no `content`: all their files are data.
        NestedField(134, "content", IntegerType(), required=True, initial_default=0),
        NestedField(100, "file_path", StringType(), required=True),
        NestedField(101, "file_format", StringType(), required=True),
        # An empty struct stands for the file's own: the partition type differs per spec.
        NestedField(102, "partition", StructType(), required=True),
        NestedField(103, "record_count", LongType(), required=True),
        NestedField(104, "file_size_in_bytes", LongType(), required=True),
        NestedField(131, "key_metadata", BinaryType(), required=False),
        NestedField(142, "first_row_id", LongType(), required=False),
        NestedField(143, "referenced_data_file", StringType(), required=False),
        NestedField(144, "content_offset", LongType(), required=False),
        NestedField(145, "content_size_in_bytes", LongType(), required=False),
        *further,
    )
    return Schema(
        NestedField(0, "status", IntegerType(), required=True),
        NestedField(3, "sequence_number", LongType(), required=False),
        NestedField(4, "file_sequence_number", LongType(), required=False),
        NestedField(2, "data_file", file, required=True),
    )


_LIST_SCHEMA = Schema(
    NestedField(500, "manifest_path", StringType(), required=True),
    # v1 has neither of the two.
    NestedField(517, "content", IntegerType(), required=True, initial_default=0),
    NestedField(515, "sequence_number", LongType(), required=True, initial_default=0),
    NestedField(502, "partition_spec_id", IntegerType(), required=True),
    NestedField(520, "first_row_id", LongType(), required=False),
    NestedField(504, "added_files_count", IntegerType(), required=False),
    NestedField(505, "existing_files_count", IntegerType(), required=False),
    NestedField(512, "added_rows_count", LongType(), required=False),
    NestedField(513, "existing_rows_count", LongType(), required=False),
)
_FURTHER = 11
"""Place of what is read of a file beside what is read of every file."""

_DATA_SCHEMA = _schema()
_DATA_SCHEMA_WITH_STATISTICS = _schema(*_STATISTICS)
_DELETE_SCHEMA = _schema(*_BOUNDS, _EQUALITY_IDS)


def read_manifest_list(io: FileIO, path: str) -> list[Manifest]:
    """Return the manifests of a snapshot, in the order of its list.

    Raises:
        DataFileError, EnvironmentProblemError: see `reading`.
    """
    with _named(path, "manifest list"):
        return [_manifest(record) for record in records_of(io, path, _LIST_SCHEMA)]


def _manifest(record: Record) -> Manifest:
    # A file's own schema may let anything be null.
    if None in (record[0], record[2], record[3]):
        raise ValueError("a manifest in it has no path, sequence number or partition spec")
    return Manifest(
        path=record[0],
        holds_deletes=record[1] == 1,
        sequence_number=record[2],
        spec_id=record[3],
        first_row_id=record[4],
        files=_sum(record[5], record[6]),
        rows=_sum(record[7], record[8]),
    )


def read_whole_manifest_list(io: FileIO, path: str) -> list[ManifestFile]:
    """Return the manifests of a snapshot as PyIceberg reads them, to be listed by another one.

    Its own way to read them trusts the file's bytes; it raises as `read_manifest_list` does.
    """
    types = {-1: ManifestFile, 508: PartitionFieldSummary}
    with _named(path, "manifest list"):
        schema = MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION]
        return list(records_of(io, path, schema, types, {517: ManifestContent}))


def _named(path: str, what: str) -> AbstractContextManager[None]:
    return reading(path, what, form=what, damage=AVRO)


def _sum(added: int | None, existing: int | None) -> int | None:
    return None if added is None or existing is None else added + existing


def read_manifest(
    io: FileIO, manifest: Manifest, *, with_statistics: bool = False
) -> Iterator[Entry]:
    """Yield the live entries of a manifest in its order; it raises as `read_manifest_list` does.

    Args:
        io: of the table.
        manifest: as its list names it.
        with_statistics: read those of data files, too, which are most of a manifest's bytes.
    """
    schema = _DATA_SCHEMA_WITH_STATISTICS if with_statistics else _DATA_SCHEMA
    if manifest.holds_deletes:
        schema = _DELETE_SCHEMA
    next_row_id = manifest.first_row_id
    is_empty = True
    with _named(manifest.path, "manifest"):
        for record in records_of(io, manifest.path, schema):
            if record[0] == ManifestEntryStatus.DELETED:
                continue
            file = record[3]
            if next_row_id is not None and file[7] is None and not manifest.holds_deletes:
                # Row ids of files without one follow each other in the manifest's order (spec,
                # first row id inheritance).
                file[7] = next_row_id
                next_row_id += file[4]
            is_empty = False
            yield _entry(record, manifest)
        if is_empty and manifest.files:
            raise ValueError(f"it has no live entry, and its list says {manifest.files}")


def read_unlisted_manifest(io: FileIO, path: str) -> list[Entry]:
    """Return the live entries of a manifest whose list is not at hand.

    What entries inherit from the list (sequence numbers, row ids, the spec's id) is not known: it
    is -1, or None.
    """
    data = Manifest(path, holds_deletes=False, sequence_number=-1, spec_id=-1, first_row_id=None)
    entries = list(read_manifest(io, data))
    if all(entry.content == FileContent.DATA for entry in entries):
        return entries
    return list(read_manifest(io, replace(data, holds_deletes=True)))


def _entry(record: Record, manifest: Manifest) -> Entry:
    sequence_number, file_sequence_number, file = record[1], record[2], record[3]
    path, rows, size = file[1], file[4], file[5]
    # A file's own schema may let anything be null.
    if path is None or rows is None or size is None or rows < 0 or size < 0:
        raise ValueError(f"an entry in it has path {path!r}, {rows} rows and {size} bytes")
    # Null means "of the commit that wrote this manifest" (spec, sequence number inheritance); v1
    # manifests have sequence number 0 throughout.
    inherited = manifest.sequence_number
    further = [file[at] for at in range(_FURTHER, len(file))]
    return Entry(
        content=FileContent(file[0]),
        path=path,
        file_format=file[2].upper(),
        partition=tuple(file[3]),
        spec_id=manifest.spec_id,
        rows=rows,
        size=size,
        sequence_number=inherited if sequence_number is None else sequence_number,
        file_sequence_number=inherited if file_sequence_number is None else file_sequence_number,
        encrypted=file[6] is not None,
        first_row_id=file[7],
        referenced_data_file=file[8],
        content_offset=file[9],
        content_size=file[10],
        path_bounds=_path_bounds(*further[:2]) if manifest.holds_deletes else None,
        statistics=Statistics(*further) if further and not manifest.holds_deletes else None,
        equality_ids=tuple(further[2] or ()) if manifest.holds_deletes else (),
    )


def _path_bounds(
    lowest: Mapping[int, bytes] | None, highest: Mapping[int, bytes] | None
) -> tuple[bytes, bytes] | None:
    lower = (lowest or {}).get(DELETE_FILE_PATH_FIELD_ID)
    upper = (highest or {}).get(DELETE_FILE_PATH_FIELD_ID)
    return None if lower is None or upper is None else (lower, upper)
