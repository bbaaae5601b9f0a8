"""Small tables for the tests, and what PyIceberg cannot do to them: row-level deletes."""

import json
import struct
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.typedef import EMPTY_DICT, Record
from pyiceberg.types import (
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)
from pyroaring import BitMap

DIMENSION = 4
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "word", StringType(), required=False),
    NestedField(3, "embedding", ListType(4, FloatType(), element_required=False), required=False),
)


def open_catalog(folder: Path, kind: type[SqlCatalog] = SqlCatalog) -> SqlCatalog:
    """A catalog handle of its own on the folder's database.

    To PyIceberg it is another process.
    """
    catalog = kind(
        "lake",
        uri=f"sqlite:///{folder}/catalog.db",
        warehouse=f"file://{folder}/warehouse",
    )
    catalog.create_namespace_if_not_exists("demo")
    return catalog


def create(
    catalog: Catalog,
    name: str = "words",
    *,
    schema: Schema = SCHEMA,
    spec: PartitionSpec | None = None,
    row_group_rows: int = 10,
    **properties: str,
) -> Table:
    settings = {
        "format-version": "2",
        "write.parquet.row-group-limit": str(row_group_rows),
        **properties,
    }
    more = {} if spec is None else {"partition_spec": spec}
    return catalog.create_table(("demo", name), schema=schema, properties=settings, **more)


def as_version_3(table: Table) -> Table:
    """The same table at format version 3, which PyIceberg can read and not write."""
    metadata = json.loads(table.metadata.model_dump_json())
    metadata |= {"format-version": 3, "next-row-id": 0}
    for snapshot in metadata["snapshots"]:
        snapshot |= {"first-row-id": 0, "added-rows": 0}
    path = f"{table.location()}/metadata/99999-v3.metadata.json"
    with table.io.new_output(path).create(overwrite=True) as out:
        out.write(json.dumps(metadata).encode())
    table.catalog.drop_table(table.name())
    return table.catalog.register_table(table.name(), path)


def number_rows(table: Table, first_row_ids: dict[int, int]) -> None:
    """Write first row ids into the current manifest list, by sequence number of the manifest."""
    snapshot = table.current_snapshot()
    schema = MANIFEST_LIST_FILE_SCHEMAS[3]
    output = AvroOutputFile(
        output_file=table.io.new_output(snapshot.manifest_list),
        file_schema=schema,
        record_schema=schema,
        schema_name="manifest_file",
        metadata={"format-version": "3", "avro.codec": "null"},
    )
    manifests = snapshot.manifests(table.io)
    with output as writer:
        writer.write_block(
            [
                Record(*manifest._data, first_row_ids[manifest.sequence_number])
                for manifest in manifests
            ]
        )


def rows(first: int, count: int, *, dimension: int = DIMENSION) -> pa.Table:
    """Rows `first`..`first + count`; the vector of row i is [i, i + 1/8, i + 2/8, ...]."""
    ids = np.arange(first, first + count, dtype=np.int64)
    return pa.table(
        {
            "id": pa.array(ids),
            "word": pa.array([f"w{i}" for i in ids]),
            "embedding": pa.FixedSizeListArray.from_arrays(
                pa.array(matrix(ids, dimension).ravel()), dimension
            ).cast(pa.list_(pa.float32())),
        }
    )


def matrix(ids: Any, dimension: int = DIMENSION) -> np.ndarray:
    steps = np.arange(dimension, dtype=np.float32) / 8
    return (np.asarray(ids, dtype=np.float32)[:, None] + steps).astype(np.float32)


class AppendDeleteManifest(_SnapshotProducer["AppendDeleteManifest"]):
    """A `delete` snapshot that adds a manifest of delete files."""

    def __init__(self, table: Table, files: Sequence[DataFile], *, v3_fields: bool) -> None:
        self.tx = table.transaction()
        super().__init__(Operation.DELETE, self.tx, table.io)
        self._files = files
        self._v3_fields = v3_fields

    def _existing_manifests(self) -> list[ManifestFile]:
        parent = self._transaction.table_metadata.snapshot_by_id(self._parent_snapshot_id)
        return [self._delete_manifest(), *parent.manifests(io=self._io)]

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        return Summary(operation=Operation.DELETE, **{"added-delete-files": str(len(self._files))})

    def _delete_manifest(self) -> ManifestFile:
        writer = _DeleteManifestWriter(
            self._transaction.table_metadata.spec(),
            self.schema(),
            self.new_manifest_output(),
            self._snapshot_id,
            "deflate",
        )
        writer.v3_fields = self._v3_fields
        with writer:
            for file in self._files:
                writer.add_entry(
                    ManifestEntry.from_args(
                        _table_format_version=2,
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                )
        return writer.to_manifest_file()


class _DeleteManifestWriter(ManifestWriterV2):
    v3_fields = False

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        version = 3 if self.v3_fields else 2
        file_type = data_file_with_partition(
            format_version=version, partition_type=self._spec.partition_type(self._schema)
        )
        # PyIceberg has long for the ids of equality deletes, where the spec, and Java, have int.
        ids = NestedField(
            135, "equality_ids", ListType(136, IntegerType(), element_required=True), required=False
        )
        fields = [ids if field.field_id == ids.field_id else field for field in file_type.fields]
        file_type = StructType(*fields)
        schema = manifest_entry_schema_with_data_file(format_version=version, data_file=file_type)
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=schema,
            record_schema=schema,
            schema_name="manifest_entry",
            metadata=self._meta,
        )


def commit_delete_files(
    table: Table,
    files: Sequence[DataFile],
    *,
    v3_fields: bool = False,
    added: pa.Table | None = None,
) -> None:
    producer = AppendDeleteManifest(table, files, v3_fields=v3_fields)
    if added is not None:
        for file in _dataframe_to_data_files(table.metadata, added, table.io):
            producer.append_data_file(file)
    producer.commit()
    producer.tx.commit_transaction()
    table.refresh()


def delete_positions(
    table: Table,
    deletes: dict[str, Sequence[int]],
    *,
    partition: Record | None = None,
    content: DataFileContent = DataFileContent.POSITION_DELETES,
    file_format: FileFormat = FileFormat.PARQUET,
    added: pa.Table | None = None,
) -> str:
    """Delete rows of data files by position, with one v2 position-delete file.

    Rows `added` are appended in the same commit, as a merge-on-read update does.
    """
    pairs = sorted((path, at) for path, places in deletes.items() for at in places)
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
        ]
    )
    data = pa.table(
        [[path for path, _ in pairs], [position for _, position in pairs]], schema=schema
    )
    path = table.location_provider().new_data_location(f"deletes-{uuid.uuid4()}.parquet")
    with table.io.new_output(path).create() as out:
        pq.write_table(data, out)
    bounds = {2147483546: min(deletes).encode()}, {2147483546: max(deletes).encode()}
    file = DataFile.from_args(
        _table_format_version=2,
        content=content,
        file_path=path,
        file_format=file_format,
        partition=partition or Record(),
        record_count=len(pairs),
        file_size_in_bytes=len(table.io.new_input(path)),
        lower_bounds=bounds[0],
        upper_bounds=bounds[1],
        equality_ids=[1] if content == DataFileContent.EQUALITY_DELETES else None,
    )
    file.spec_id = table.spec().spec_id
    commit_delete_files(table, [file], added=added)
    return path


def delete_equal(
    table: Table,
    keys: pa.Table,
    *,
    partition: Record | None = None,
    spec_id: int | None = None,
    added: pa.Table | None = None,
    field_ids: Sequence[int] = (),
) -> str:
    """Delete the rows that equal a key, with one equality-delete file, as Flink writes upserts.

    Args:
        table: to commit to.
        keys: named as columns of the table.
        partition: values of the partition that it speaks of; default: of a spec without any.
        spec_id: of that spec; default: the table's.
        added: rows to append in the same commit.
        field_ids: of the columns, where their names are not those of the current schema.
    """
    ids = list(field_ids) or [
        table.schema().find_field(name).field_id for name in keys.column_names
    ]
    schema = pa.schema(
        field.with_metadata({"PARQUET:field_id": str(number)})
        for field, number in zip(keys.schema, ids, strict=True)
    )
    path = table.location_provider().new_data_location(f"equality-deletes-{uuid.uuid4()}.parquet")
    with table.io.new_output(path).create() as out:
        pq.write_table(keys.cast(schema), out)
    file = DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.EQUALITY_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition or Record(),
        record_count=len(keys),
        file_size_in_bytes=len(table.io.new_input(path)),
        equality_ids=ids,
    )
    file.spec_id = table.spec().spec_id if spec_id is None else spec_id
    commit_delete_files(table, [file], added=added)
    return path


def deletion_vector_blob(positions: Sequence[int]) -> bytes:
    """A `deletion-vector-v1` blob, as the spec lays it out."""
    bitmap = BitMap(positions).serialize()
    body = bytes.fromhex("d1d33964") + struct.pack("<QI", 1, 0) + bitmap
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def vector_file(
    path: str, size: int, offset: int, length: int, data_file: str, count: int
) -> DataFile:
    """The manifest entry of a deletion vector."""
    return DataFile.from_args(
        _table_format_version=3,
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PUFFIN,
        partition=Record(),
        record_count=count,
        file_size_in_bytes=size,
        referenced_data_file=data_file,
        content_offset=offset,
        content_size_in_bytes=length,
    )


def live_ids(table: Table, snapshot_id: int | None = None) -> list[int]:
    """What PyIceberg itself reads: the judge of ours."""
    return sorted(table.scan(snapshot_id=snapshot_id).to_arrow().column("id").to_pylist())
