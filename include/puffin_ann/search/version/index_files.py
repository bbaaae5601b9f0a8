"""The Puffin files of an index, and the blobs of one version in whichever of them they are."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from types import MappingProxyType
from typing import BinaryIO

from pyiceberg.io import FileIO

from puffin_ann.blobs.encoding.container import fingerprint
from puffin_ann.blobs.version import directory as directory_blob
from puffin_ann.blobs.version.directory import Directory, NamedBlob
from puffin_ann.errors import ChecksumError, ObjectMissingError, PuffinFormatError
from puffin_ann.lake.store.objects import FOLDER, object_length, open_object
from puffin_ann.lake.store.ranges import Range, is_local
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.puffin.reader import BlobReader, PuffinReader

END_BYTES = 2 << 20
"""Of a file that is not on local disk, read from its end along with the footer: small blobs stand
there, and cells of some thousand numbers each are the most of those."""

DIGEST = "digest"
"""Property of a blob: the fingerprint of its content, by which versions name it."""


@contextmanager
def open_puffin(
    io: FileIO, path: str, length: int | None = None, *, small_blobs: bool = False
) -> Iterator[PuffinReader]:
    """Open a Puffin file of the table's store; the footer is read, no blob is.

    Args:
        io: reads the file.
        path: its location.
        length: bytes of it, if known.
        small_blobs: read along what is beside the footer, where that saves a round trip.

    Raises:
        PuffinFormatError: it is not a sound Puffin file, or not even a file.
        FileNotFoundError: it is not there.
        StoreUnavailableError: its store does not say; here, or when a blob is read.
    """
    try:
        opened = open_object(io, path, length)
    except IsADirectoryError as error:
        raise PuffinFormatError(f"{path} is no file: {error.strerror}") from error
    except FileNotFoundError as error:
        if object_length(io, path) == FOLDER:  # some stores say of folders that nothing is there
            raise PuffinFormatError(f"{path} is a directory, not a file") from error
        raise
    first = END_BYTES if small_blobs and not is_local(path) else None
    with opened as stream:
        yield PuffinReader(stream, length=length, footer_size=first, name=path)


@contextmanager
def missing_is_damage(path: str) -> Iterator[None]:
    """Take it for damage that a version's file is gone from the store, not one of the local disk.

    Raises:
        PuffinFormatError: the file is gone.
    """
    try:
        yield
    except ObjectMissingError:
        raise PuffinFormatError(f"{path} is gone from the store") from None


@dataclass(frozen=True, eq=False)
class StoredBlob:
    """A blob, and the file to read it from.

    Attributes:
        digest: the fingerprint that its content must have; empty if any will do.
    """

    reader: BlobReader
    metadata: BlobMetadata
    digest: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of its content, of which the end is read.

        Raises:
            FormatError: it is not a blob of ours.
            ChecksumError: it is not the one that the version names.
        """
        is_whole = self.metadata.compression_codec is None
        return self._checked(self._open() if is_whole else BytesIO(self.reader.read(self.metadata)))

    def read(self) -> bytes:
        """Return its content; raises as `fingerprint` does."""
        data = self.reader.read(self.metadata)
        if self.digest:
            self._checked(BytesIO(data))
        return data

    def open(self) -> BinaryIO:
        """Return its content as a seekable file, as `PuffinReader.open` does."""
        if self.digest:
            _ = self.fingerprint
        return self._open()

    def _checked(self, content: BinaryIO) -> str:
        """Return the fingerprint of the content, if it is the right one."""
        found = fingerprint(content)
        if self.digest not in ("", found):
            raise ChecksumError(
                f"{self.reader.name}: blob {self.metadata.type} at {self.metadata.offset} is not "
                "the one that the index names"
            )
        return found

    def _open(self) -> BinaryIO:
        return self.reader.open(self.metadata)


@dataclass(frozen=True)
class BlobPlace:
    """Where a blob is.

    Attributes:
        path: location of its file.
        file_length: bytes of that.
        metadata: of the blob.
        digest: the fingerprint of its content, where a directory says it; else empty.
    """

    path: str
    file_length: int
    metadata: BlobMetadata
    digest: str = ""

    def range(self, start: int, stop: int) -> Range:
        """Return bytes `[start, stop)` of the blob as a range of its file.

        Raises:
            PuffinFormatError: the blob is not within its file.
        """
        offset, length = self.metadata.offset, self.metadata.length
        if offset < 0 or offset + length > self.file_length:
            raise PuffinFormatError(f"{self.path}: blob at {offset} ends beyond the file")
        return Range(self.path, offset + start, offset + stop)


def files_named(path: str, directory: Directory | None) -> frozenset[str]:
    """Return the locations of the files that a directory names.

    Args:
        path: of the file that has the directory.
        directory: None names none.
    """
    named = directory.files if directory else ()
    return frozenset(_beside(path, file.name) for file in named)


def directory_in(reader: PuffinReader, index: str) -> Directory | None:
    """Return the directory of an index in a file; None if it has none.

    Raises:
        FormatError: it has several, or one that is not sound.
    """
    if not reader.find(directory_blob.TYPE, index=index):
        return None
    return directory_blob.decode(reader.read(reader.only(directory_blob.TYPE, index=index)))


def blobs_in(reader: PuffinReader, index: str) -> tuple[BlobMetadata, ...]:
    """Return the blobs of an index in a file, in file order."""
    return tuple(b for b in reader.metadata.blobs if b.properties.get("index") == index)


NOTHING_READ: Mapping[str, BlobReader] = MappingProxyType({})
"""Of no file anything was read."""


def do_nothing(_: str) -> None:
    """Let a file be opened."""


class VersionFiles:
    """Blobs of one version, each file opened when something of it is first read.

    with version.files(io) as files:
        rows = files.only("puffin-ann-rows-v2", shard=3).read()

    Args:
        io: reads the files.
        path: the version's own file.
        index: name of the index.
        directory: what the version has in other files.
        field_id: of the indexed column.
        length: bytes of the version's own file, if known.
        own: the version's own file, if it is open.
        own_blobs: what its footer says of the index, if that was read.
        read: files by their location of which blobs were read.
        opening: gets the location of each file before it is opened.
        gone_is_damage: a file that is not there is a damaged one.
    """

    def __init__(
        self,
        io: FileIO,
        path: str,
        index: str,
        directory: Directory | None,
        field_id: int,
        *,
        length: int | None = None,
        own: PuffinReader | None = None,
        own_blobs: Sequence[BlobMetadata] | None = None,
        read: Mapping[str, BlobReader] = NOTHING_READ,
        opening: Callable[[str], None] = do_nothing,
        gone_is_damage: bool = True,
    ) -> None:
        self._io, self._path, self._index, self._field_id = io, path, index, field_id
        self._length, self._own_blobs = length, own_blobs
        self._opening, self._gone_is_damage = opening, gone_is_damage
        self._opened: dict[str, BlobReader] = {**read} if own is None else {**read, path: own}
        self._stack = ExitStack()
        self._named: dict[tuple[str, int | None], BlobPlace] = {}
        if directory is not None:
            for blob in directory.blobs:
                file = directory.files[blob.file]
                self._named[blob.type, blob.shard] = BlobPlace(
                    _beside(path, file.name), file.length, self._metadata(blob), blob.digest
                )

    def __enter__(self) -> "VersionFiles":
        """Return itself; nothing is opened yet."""
        return self

    def __exit__(self, _type: object, error: object, _trace: object) -> None:
        """Close what was opened.

        Raises:
            PuffinFormatError: a file was gone, where that is damage.
        """
        self._stack.close()
        if self._gone_is_damage and isinstance(error, ObjectMissingError):
            raise PuffinFormatError(str(error)) from None

    def places(
        self, type: str | Sequence[str], shard: int | None = None, file: str = ""
    ) -> list[BlobPlace]:
        """Return where the blobs of a type and a shard are; there should be one, or none.

        Args:
            type: of the blob; or several, of which it is one.
            shard: id of the shard; None: those that belong to none.
            file: location of a staged file that has it; default: the version's own, but for what
                its directory names.

        Raises:
            ObjectMissingError: the file whose footer says it is gone.
            PuffinFormatError: that is not a sound Puffin file.
            StoreUnavailableError: its store does not say.
        """
        path = file or self._path
        types = (type,) if isinstance(type, str) else type
        if path == self._path:
            named = [self._named[kind, shard] for kind in types if (kind, shard) in self._named]
            if named:
                return named
        of_shard = {} if shard is None else {"shard": str(shard)}
        length, blobs = self._blobs_of(path)
        return [
            BlobPlace(path, length, blob)
            for kind in types
            for blob in blobs
            if blob.type == kind and of_shard.items() <= dict(blob.properties).items()
        ]

    @property
    def named(self) -> list[BlobPlace]:
        """Where the blobs are that are in other files."""
        return list(self._named.values())

    def every_place(self, files: Collection[str] = ()) -> list[BlobPlace]:
        """Return where all blobs of the index are; raises as `places` does.

        Args:
            files: locations of staged files, whose blobs are the version's, too.
        """
        found = self.named
        for path in sorted({self._path, *files}):
            length, blobs = self._blobs_of(path)
            found += [BlobPlace(path, length, blob) for blob in blobs]
        return found

    def open(self, place: BlobPlace) -> StoredBlob:
        """Return a blob to be read.

        Raises:
            ObjectMissingError: its file is gone.
            StoreUnavailableError: its store does not say.
        """
        reader = self._opened.get(place.path)
        if reader is None:
            self._opening(place.path)
            opened = _open_blobs(self._io, place.path, place.file_length)
            reader = self._opened[place.path] = self._stack.enter_context(opened)
        return StoredBlob(reader, place.metadata, place.digest)

    def find(
        self, type: str | Sequence[str], shard: int | None = None, file: str = ""
    ) -> list[StoredBlob]:
        """Return the blobs of a type and a shard, as `places` does."""
        return [self.open(place) for place in self.places(type, shard, file)]

    def only(
        self, type: str | Sequence[str], shard: int | None = None, file: str = ""
    ) -> StoredBlob:
        """Return the one blob of a type and a shard, as `find` does.

        Raises:
            PuffinFormatError: there is none, or more than one.
        """
        found = self.find(type, shard, file)
        if len(found) != 1:
            of = "" if shard is None else f", shard {shard}"
            raise PuffinFormatError(
                f"{file or self._path}: expected one blob of type {_either(type)}, index "
                f"{self._index!r}{of}; found {len(found)}"
            )
        return found[0]

    def _metadata(self, blob: NamedBlob) -> BlobMetadata:
        properties = {"index": self._index}
        if blob.shard is not None:
            properties["shard"] = str(blob.shard)
        if blob.digest:
            properties[DIGEST] = blob.digest
        return BlobMetadata(
            type=blob.type,
            fields=(self._field_id,),
            snapshot_id=blob.snapshot_id,
            sequence_number=blob.sequence_number,
            offset=blob.offset,
            length=blob.length,
            compression_codec=blob.codec,
            properties=properties,
        )

    def _blobs_of(self, path: str) -> tuple[int, Sequence[BlobMetadata]]:
        """Return the length of a file and what its footer says of the index."""
        if path == self._path and self._own_blobs is not None and self._length is not None:
            return self._length, self._own_blobs
        reader = self._footer_of(path)
        return reader.length, blobs_in(reader, self._index)

    def _footer_of(self, path: str) -> PuffinReader:
        reader = self._opened.get(path)
        if not isinstance(reader, PuffinReader):
            self._opening(path)
            length = self._length if path == self._path else None
            reader = self._stack.enter_context(open_puffin(self._io, path, length))
            self._opened[path] = reader
        return reader


@contextmanager
def _open_blobs(io: FileIO, path: str, length: int) -> Iterator[BlobReader]:
    """Open a file of which it is known where its blobs are."""
    try:
        opened = open_object(io, path, length)
    except IsADirectoryError as error:
        raise PuffinFormatError(f"{path} is no file: {error.strerror}") from error
    with opened as stream:
        yield BlobReader(stream, name=path, length=length)


def _either(types: str | Sequence[str]) -> str:
    return types if isinstance(types, str) else " or ".join(types)


def _beside(path: str, name: str) -> str:
    return f"{path.rpartition('/')[0]}/{name}"
