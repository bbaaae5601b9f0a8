"""The live data files of a snapshot, each with the delete files that apply to it."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform
from pyiceberg.utils.concurrent import ExecutorFactory

from puffin_ann.errors import FormatError, UnsupportedTableError
from puffin_ann.lake.catalog.tables import name_of, snapshot
from puffin_ann.lake.read.files.manifests import (
    Entry,
    FileContent,
    Manifest,
    read_manifest,
    read_manifest_list,
)

PartitionKey = tuple[int, tuple[object, ...]]

MAX_ROWS = 1 << 32
"""Row positions are held in 32-bit bitmaps and locators."""


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A file that deletes rows.

    Attributes:
        kind: by position, a v2 Parquet file or a v3 deletion vector; or by equality of columns.
        referenced_data_file: set where the file speaks of one data file only, which a deletion
            vector always does.
        content_offset, content_size: range of a deletion vector's blob, in bytes.
        equality_ids: field ids of the columns by which rows are deleted that equal one of its rows.
    """

    path: str
    size: int
    sequence_number: int
    kind: Literal["positions", "vector", "equality"]
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size: int | None = None
    equality_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of a snapshot.

    `sequence_number` is the file sequence number: it says which commit added the file, and with
    path and size is what a covered file is recognised by. `data_sequence_number` orders the file
    against deletes; a compaction may keep it while the file sequence number moves on.
    `first_row_id` is set on v3 tables only.
    """

    path: str
    size: int
    sequence_number: int
    rows: int
    deletes: tuple[DeleteFile, ...] = ()
    data_sequence_number: int = 0
    spec_id: int = 0
    partition: tuple[object, ...] = ()
    first_row_id: int | None = None


@dataclass(frozen=True)
class Listed:
    """A snapshot as its manifest list describes it.

    Attributes:
        table: as it was loaded.
        table_name: `catalog.namespace.table`, for messages.
        manifests: in the order of the list; none for a table without snapshots.
    """

    table: Table
    table_name: str
    manifests: Sequence[Manifest]

    @property
    def io(self) -> FileIO:
        """The table's store."""
        return self.table.io

    def delete_index(self, entries: Iterable[Entry]) -> "DeleteIndex":
        """Return an index of some of the snapshot's deletes."""
        specs = self.table.specs().values()
        unpartitioned = frozenset(
            spec.spec_id
            for spec in specs
            if all(isinstance(field.transform, VoidTransform) for field in spec.fields)
        )
        index = DeleteIndex(self.table_name, unpartitioned)
        for entry in entries:
            index.add(entry)
        return index


def live_files(
    table: Table, snapshot_id: int | None = None, wanted: Callable[[Entry], bool] | None = None
) -> list[LiveFile]:
    """Return the data files of a snapshot (default: the current one), sorted by path.

    A table without snapshots has none. Raises SnapshotNotFoundError, and UnsupportedTableError for
    what we refuse by name: encrypted files, data files that are not Parquet.

    Args:
        table: as it was loaded.
        snapshot_id: of the snapshot.
        wanted: tells of an entry with its statistics whether its file is; default: all are.
    """
    return files_of(load_manifest_list(table, snapshot_id), wanted)


def load_manifest_list(table: Table, snapshot_id: int | None = None) -> Listed:
    """Read the manifest list of a snapshot (default: the current one).

    Raises:
        SnapshotNotFoundError: the table has no such snapshot.
    """
    at = snapshot(table, snapshot_id)
    manifests = [] if at is None else read_manifest_list(table.io, at.manifest_list)
    return Listed(table, name_of(table), manifests)


def files_of(at: Listed, wanted: Callable[[Entry], bool] | None = None) -> list[LiveFile]:
    """Return the data files of a snapshot, sorted by path; as `live_files`."""
    deletes = at.delete_index(
        read_entries(at.io, [manifest for manifest in at.manifests if manifest.holds_deletes])
    )

    def read(manifest: Manifest) -> list[LiveFile]:
        # Made in the thread that reads, so that the larger entries are not all held at a time.
        entries = read_manifest(at.io, manifest, with_statistics=wanted is not None)
        return [
            live_file(entry, deletes, at.table_name)
            for entry in entries
            if wanted is None or wanted(entry)
        ]

    data = [manifest for manifest in at.manifests if not manifest.holds_deletes]
    # Threads for the store's latency; the order stays that of the list.
    files = list(chain.from_iterable(ExecutorFactory.get_or_create().map(read, data)))
    files.sort(key=lambda file: file.path)
    for before, after in pairwise(files):
        if before.path == after.path:
            raise UnsupportedTableError(f"{at.table_name} lists the data file {after.path} twice")
    return files


def read_entries(io: FileIO, manifests: Iterable[Manifest]) -> list[Entry]:
    """Return the live entries of several manifests, in order."""
    read = ExecutorFactory.get_or_create().map(
        lambda manifest: list(read_manifest(io, manifest)), manifests
    )
    return list(chain.from_iterable(read))


def live_file(entry: Entry, deletes: "DeleteIndex", name: str) -> LiveFile:
    """Return the data file of an entry with the deletes that apply to it.

    Raises:
        UnsupportedTableError: it cannot be indexed.
    """
    _refuse_unreadable(entry, name)
    return LiveFile(
        path=entry.path,
        size=entry.size,
        sequence_number=entry.file_sequence_number,
        rows=entry.rows,
        deletes=deletes.of(entry),
        data_sequence_number=entry.sequence_number,
        spec_id=entry.spec_id,
        partition=entry.partition,
        first_row_id=entry.first_row_id,
    )


def _refuse_unreadable(entry: Entry, name: str) -> None:
    if entry.content != FileContent.DATA:
        raise FormatError(f"{name}: a manifest of data lists deletes, {entry.path}")
    if entry.file_format != "PARQUET":
        raise UnsupportedTableError(
            f"{name} has a data file in {entry.file_format}, {entry.path}; only Parquet can be "
            "indexed: rewrite the table's files (write.format.default=parquet, rewrite_data_files)"
        )
    if entry.encrypted:
        raise UnsupportedTableError(f"{name} has an encrypted data file, {entry.path}")
    if not 0 <= entry.rows < MAX_ROWS:
        raise UnsupportedTableError(f"{name}: {entry.path} is said to hold {entry.rows} rows")


class DeleteIndex:
    """The delete files of a snapshot, by what they can apply to.

    The rules are those of the Iceberg spec, "Scan planning". A deletion vector and a delete file
    that names one data file are found by that path; other deletes by partition.

    Args:
        table_name: for messages.
        unpartitioned: ids of partition specs without partitions.
    """

    def __init__(self, table_name: str, unpartitioned: Collection[int] = ()) -> None:
        self._table_name = table_name
        self._unpartitioned = unpartitioned
        self._by_path: dict[str, list[DeleteFile]] = defaultdict(list)
        self._by_partition: dict[PartitionKey, list[tuple[DeleteFile, Entry]]] = defaultdict(list)
        self._by_equality: dict[PartitionKey | None, list[Entry]] = defaultdict(list)
        self._known: dict[str, DeleteFile] = {}

    @property
    def partitions(self) -> Collection[PartitionKey]:
        """Partitions with position deletes that do not speak of one data file only."""
        return self._by_partition.keys()

    def add(self, entry: Entry) -> None:
        """Take in an entry of a delete manifest."""
        if entry.content == FileContent.DATA:
            raise FormatError(f"{self._table_name}: a delete manifest lists data, {entry.path}")
        if entry.content == FileContent.EQUALITY_DELETES:
            # Of an unpartitioned spec, they apply to files of every partition.
            everywhere = not entry.partition or entry.spec_id in self._unpartitioned
            self._by_equality[None if everywhere else _partition_key(entry)].append(entry)
            return
        delete = self.delete_file(entry)
        if delete.referenced_data_file is not None:
            self._by_path[delete.referenced_data_file].append(delete)
        else:
            self._by_partition[_partition_key(entry)].append((delete, entry))

    def of(self, data: Entry) -> tuple[DeleteFile, ...]:
        """Return the deletes that apply to a data file, in a fixed order.

        Raises:
            UnsupportedTableError: one is in a format that is not read.
        """
        partition = _partition_key(data)
        by_equality = [
            self._by_columns(entry)
            for key in (None, partition)
            for entry in self._by_equality.get(key, ())
            # What a commit deletes by equality, it deletes from the files before it.
            if data.sequence_number < entry.sequence_number
        ]
        by_position = self.by_position(data.path, data.sequence_number, partition)
        return (*by_position, *sorted(by_equality, key=_order))

    def by_position(
        self, path: str, sequence_number: int, partition: PartitionKey
    ) -> tuple[DeleteFile, ...]:
        """Return the deletes by position that apply to a data file, in a fixed order.

        Args:
            path: of the data file.
            sequence_number: its data sequence number.
            partition: id of its partition spec, and its values.
        """
        # Unlike equality deletes, these also apply to files of their own commit.
        found = [
            delete
            for delete in self._by_path.get(path, ())
            if sequence_number <= delete.sequence_number
        ]
        vectors = [delete for delete in found if delete.kind == "vector"]
        if vectors:
            # A deletion vector holds what older position deletes said, too (spec).
            return (max(vectors, key=lambda delete: delete.sequence_number),)
        for delete, entry in self._by_partition.get(partition, ()):
            if sequence_number <= delete.sequence_number and may_name(entry, path):
                found.append(delete)
        return tuple(sorted(found, key=_order))

    def delete_file(self, entry: Entry) -> DeleteFile:
        """Return what an entry says of deletes by position.

        Raises:
            UnsupportedTableError: it is in a format that is not read, or does not say enough.
        """
        if entry.file_format not in ("PARQUET", "PUFFIN"):
            raise UnsupportedTableError(
                f"{self._table_name} has position deletes in {entry.file_format}, {entry.path}; "
                "only Parquet and deletion vectors are read: run rewrite_position_delete_files"
            )
        is_vector = entry.file_format == "PUFFIN"
        if is_vector and entry.referenced_data_file is None:
            raise UnsupportedTableError(
                f"{self._table_name}: the manifest does not say which data file the deletion "
                f"vector in {entry.path} refers to"
            )
        return DeleteFile(
            path=entry.path,
            size=entry.size,
            sequence_number=entry.sequence_number,
            kind="vector" if is_vector else "positions",
            referenced_data_file=entry.referenced_data_file or _only_path(entry),
            content_offset=entry.content_offset,
            content_size=entry.content_size,
        )

    def _by_columns(self, entry: Entry) -> DeleteFile:
        """Return what an entry says of deletes by equality; asked of those that apply to a file."""
        if entry.path in self._known:
            return self._known[entry.path]
        if entry.file_format != "PARQUET":
            raise UnsupportedTableError(
                f"{self._table_name} has equality deletes in {entry.file_format}, {entry.path}; "
                "only Parquet is read: run a compaction that applies them, for instance "
                "CALL <catalog>.system.rewrite_data_files(table => '<table>', "
                "options => map('delete-file-threshold', '1'))"
            )
        if not entry.equality_ids:
            raise FormatError(
                f"{self._table_name}: the manifest does not say by which columns {entry.path} "
                "deletes rows"
            )
        found = DeleteFile(
            path=entry.path,
            size=entry.size,
            sequence_number=entry.sequence_number,
            kind="equality",
            equality_ids=tuple(sorted(set(entry.equality_ids))),
        )
        self._known[entry.path] = found
        return found


def _order(delete: DeleteFile) -> tuple[int, str]:
    return (delete.sequence_number, delete.path)


def _partition_key(entry: Entry) -> PartitionKey:
    return (entry.spec_id, entry.partition)


def may_name(entry: Entry, path: str) -> bool:
    """Tell whether a file of position deletes can speak of a data file, by its bounds."""
    if entry.path_bounds is None:
        return True
    lower, upper = entry.path_bounds
    encoded = path.encode()
    # A truncated upper bound is raised in its last character, a lower one merely cut: both hold.
    return lower <= encoded <= upper


def _only_path(entry: Entry) -> str | None:
    """Return the one data file a delete file speaks of, where its bounds say so.

    Equal bounds cannot be truncated ones: truncation raises the upper bound.
    """
    if entry.path_bounds is None or entry.path_bounds[0] != entry.path_bounds[1]:
        return None
    return entry.path_bounds[0].decode()
