"""One version of an index: what its small blobs say, and how they are loaded."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from typing import TypeVar

from pyiceberg.io import FileIO
from pyroaring import BitMap

from puffin_ann.blobs.changes import coverage_changes as coverage_changes_blob
from puffin_ann.blobs.changes import tombstone_changes as tombstone_changes_blob
from puffin_ann.blobs.changes.tombstone_changes import AddedTombstones
from puffin_ann.blobs.encoding.container import fingerprint
from puffin_ann.blobs.version import coverage as coverage_blob
from puffin_ann.blobs.version import directory as directory_blob
from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.blobs.version import routing as routing_blob
from puffin_ann.blobs.version.coverage import Coverage
from puffin_ann.blobs.version.directory import Directory
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.blobs.version.routing import Routing, ShardEntry
from puffin_ann.errors import (
    BlobFormatError,
    ChecksumError,
    FormatError,
    PuffinFormatError,
)
from puffin_ann.lake.store.locations import require_beside
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.puffin.reader import BlobReader, PuffinReader
from puffin_ann.search.version.consistency import CoveredRows, check_version
from puffin_ann.search.version.index_files import (
    NOTHING_READ,
    VersionFiles,
    blobs_in,
    files_named,
    open_puffin,
)
from puffin_ann.search.version.version_cells import VersionCells

R = TypeVar("R")

SMALL_CELLS = 1 << 20
"""Bytes of cells, as stored in the version's own file, that are read along with what is beside
them: to ask for them alone takes longer."""


@dataclass(frozen=True)
class CoveredBefore:
    """A whole coverage blob that a version has or names.

    Attributes:
        coverage: what it says.
        digest: its fingerprint, hexadecimal.
        length: its bytes, not compressed.
        written: bytes of changes that were written since it was.
    """

    coverage: Coverage
    digest: str
    length: int
    written: int


@dataclass(frozen=True)
class IndexVersion:
    """One published (or staged) state of an index.

    Attributes:
        index: name of the index.
        path: the Puffin file that holds its routing blob, and all blobs that no directory names.
        snapshot_id: snapshot the file is registered under; None while it is not published.
        length: bytes of the file.
        field_id: field id of the indexed column, by which it is found when it was renamed.
        directory: the blobs that it has in other files; None if it has all in its own.
        added_tombstones: by shard id, deleted rows that the shard's tombstones blob does not name.
        covered_before: what its coverage blob says, which later changes are told against.
        named_cells: the cells, where its routing names the blob that has them.
        own_blobs: what the footer of its file says of the index; None if that was not kept.
    """

    index: str
    path: str
    snapshot_id: int | None
    length: int
    field_id: int
    routing: Routing
    coverage: Coverage
    directory: Directory | None = None
    added_tombstones: Mapping[int, AddedTombstones] = field(default_factory=dict)
    covered_before: CoveredBefore | None = None
    named_cells: VersionCells | None = field(default=None, compare=False, repr=False)
    own_blobs: tuple[BlobMetadata, ...] | None = field(default=None, compare=False, repr=False)

    @property
    def vectors(self) -> int:
        """Number of rows indexed, without tombstones; of centroids alone, no shard has them."""
        if self.routing.shards:
            return sum(shard.rows - shard.tombstones for shard in self.routing.shards)
        return self.coverage.columns.indexed_rows

    @property
    def tombstone_ratio(self) -> float:
        """Highest share of a shard's or delta's rows that are tombstones."""
        filled = [shard for shard in self.routing.shards if shard.rows]
        return max((shard.tombstones / shard.rows for shard in filled), default=0.0)

    @cached_property
    def covered(self) -> CoveredRows:
        """The rows it covers, as locators of shards are looked up in them."""
        return CoveredRows.of(self.coverage.columns)

    @property
    def run_id(self) -> str:
        """The run that published it, which tells it from other versions of the index."""
        return version_id(self.routing, self.coverage.base_snapshot_id)

    def file_of(self, shard: ShardEntry) -> str:
        """Return the Puffin file that holds the blobs of one shard that the directory has not."""
        return shard.file or self.path

    def added_to(self, shard: ShardEntry) -> BitMap:
        """Return the deleted rows of a shard that its tombstones blob does not name.

        Raises:
            BlobFormatError: they are more than the shard has.
        """
        added = self.added_tombstones.get(shard.shard_id)
        if added is None:
            return BitMap()
        if len(added.ordinals) > shard.tombstones or added.ordinals.max() >= shard.rows:
            raise BlobFormatError(
                f"{self.path}: shard {shard.shard_id} has {shard.tombstones} of {shard.rows} rows "
                f"deleted by the routing blob; {len(added.ordinals)}, up to row "
                f"{added.ordinals.max()}, by the tombstone changes blob"
            )
        return BitMap(added.ordinals)

    @property
    def staged(self) -> frozenset[str]:
        """Files of shards of a version that is not published."""
        return frozenset(shard.file for shard in self.routing.shards if shard.file)

    @property
    def needs(self) -> frozenset[str]:
        """The other Puffin files without which it is not whole."""
        return files_named(self.path, self.directory) | self.staged

    def cells(self, io: FileIO) -> Partitions:
        """Return its cells; they are read when they are first asked for, and kept.

        Raises:
            FormatError: they cannot be read: the blob that has them is damaged, or is gone.
            StoreUnavailableError: its store does not say.
        """
        if isinstance(self.routing.cells, Partitions):
            return self.routing.cells
        named, where = self.named_cells or VersionCells(self.routing), self.path

        def read() -> bytes:
            nonlocal where
            with self.files(io) as files:
                blob = files.only(partitions_blob.TYPE)
                where = blob.reader.name
                return blob.read()

        try:
            return named.get(read)
        except FormatError as error:
            said = str(error)
            raise type(error)(said if where in said else f"{where}: {said}") from None

    def files(self, io: FileIO, read: Mapping[str, BlobReader] = NOTHING_READ) -> VersionFiles:
        """Return its files, to be opened, but for those of which blobs were read."""
        return VersionFiles(
            io,
            self.path,
            self.index,
            self.directory,
            self.field_id,
            length=self.length,
            own_blobs=self.own_blobs,
            read=read,
        )


def load_version(
    io: FileIO,
    path: str,
    index: str,
    *,
    snapshot_id: int | None = None,
    length: int | None = None,
    tombstone_changes: bool = True,
) -> IndexVersion | None:
    """Read one version's small blobs but for large cells, at once; None without the index.

    Args:
        io: reads the files.
        path: of the version's own file.
        index: name of the index.
        snapshot_id: that it is registered under.
        length: bytes of the file, if known.
        tombstone_changes: read these; without them nothing but small blobs of it can be used.

    Raises:
        FormatError: the file is not a sound Puffin file, or the blobs are not ours.
        FileNotFoundError, StoreUnavailableError: as `open_puffin`.
    """

    def read() -> IndexVersion | None:
        with open_puffin(io, path, length, small_blobs=True) as reader:
            return version_in(io, reader, index, snapshot_id, tombstone_changes=tombstone_changes)

    return read_confirmed(read)


def read_confirmed(read: Callable[[], R]) -> R:
    """Return what is read of a file; broken twice, it is: what a network garbled is whole."""
    try:
        return read()
    except FormatError:
        return read()


SMALL_BLOBS = (
    coverage_blob.TYPE,
    coverage_changes_blob.TYPE,
    directory_blob.TYPE,
    partitions_blob.TYPE,
    tombstone_changes_blob.TYPE,
)
"""Blobs that a version has one of, at most, beside its routing; all but the directory may be in
another file."""


def version_in(
    io: FileIO,
    reader: PuffinReader,
    index: str,
    snapshot_id: int | None,
    *,
    tombstone_changes: bool = True,
) -> IndexVersion | None:
    """Read one version's small blobs from its file, which is open, as `load_version` does."""
    path = reader.name
    if not reader.find(routing_blob.TYPE, index=index):
        return None
    stored = reader.only(routing_blob.TYPE, index=index)
    if len(stored.fields) != 1:
        raise PuffinFormatError(f"{path}: the routing blob of index {index!r} names no field")
    left_out = frozenset[str]() if tombstone_changes else {tombstone_changes_blob.TYPE}
    first, small = _read_small(reader, stored, index, left_out)
    routing = routing_blob.decode(first)
    directory = None
    if directory_blob.TYPE in small:
        directory = directory_blob.decode(small[directory_blob.TYPE])
    with VersionFiles(io, path, index, directory, stored.fields[0], own=reader) as files:

        def read(kind: str, *, needed: bool = True) -> bytes:
            if kind in small:
                return small[kind]
            return files.only(kind).read() if needed or files.find(kind) else b""

        covered_before, coverage = _coverage(
            path, read(coverage_blob.TYPE), small.get(coverage_changes_blob.TYPE)
        )
        tombstones = b""
        if tombstone_changes:
            tombstones = read(tombstone_changes_blob.TYPE, needed=False)
    for shard in routing.shards:
        if shard.file:
            require_beside(path, shard.file)
    check_version(routing, coverage)
    return IndexVersion(
        index=index,
        field_id=stored.fields[0],
        path=path,
        snapshot_id=snapshot_id,
        length=reader.length,
        routing=routing,
        coverage=coverage,
        directory=directory,
        added_tombstones=tombstone_changes_blob.decode(tombstones) if tombstones else {},
        covered_before=covered_before,
        named_cells=VersionCells(routing, small.get(partitions_blob.TYPE, b"")),
        own_blobs=blobs_in(reader, index),
    )


def _read_small(
    reader: PuffinReader, routing: BlobMetadata, index: str, left_out: Set[str]
) -> tuple[bytes, dict[str, bytes]]:
    """Return the routing blob and, by type, the others that the version has in its own file.

    Of cells that are damaged, or large and did not come along with the footer, there is none: who
    needs them reads them.
    """
    own = [
        reader.only(kind, index=index)
        for kind in SMALL_BLOBS
        if kind not in {partitions_blob.TYPE, *left_out} and reader.find(kind, index=index)
    ]
    cells = [
        blob
        for blob in reader.find(partitions_blob.TYPE, index=index)
        if blob.length <= SMALL_CELLS or reader.came_along(blob)
    ]
    if len(cells) != 1:
        return _read_by_type(reader, routing, own)
    try:
        return _read_by_type(reader, routing, [*own, *cells])
    except FormatError:
        return _read_by_type(reader, routing, own)


def _read_by_type(
    reader: PuffinReader, routing: BlobMetadata, blobs: Sequence[BlobMetadata]
) -> tuple[bytes, dict[str, bytes]]:
    first, *rest = reader.read_all([routing, *blobs])
    return first, {blob.type: data for blob, data in zip(blobs, rest, strict=True)}


def _coverage(path: str, data: bytes, changes: bytes | None) -> tuple[CoveredBefore, Coverage]:
    """Return what a coverage blob says, and what is covered by that and by changes of it.

    Raises:
        ChecksumError: the changes are of another blob.
    """
    before = coverage_blob.decode(data)
    digest = fingerprint(BytesIO(data))
    if changes is None:
        return CoveredBefore(before, digest, len(data), 0), before
    found = coverage_changes_blob.decode(changes)
    if found.digest != digest:
        raise ChecksumError(
            f"{path}: the coverage changes blob is of another coverage blob than the index names"
        )
    return CoveredBefore(before, digest, len(data), found.written), found.applied_to(before)


def version_id(routing: Routing, base_snapshot_id: int) -> str:
    """Return what tells a version from others of its index: the run that published it."""
    return routing.run_id or str(base_snapshot_id)
