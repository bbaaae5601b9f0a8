"""A shard, brought from its Puffin file to local disk and opened for search."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from puffin_ann.blobs import rows as rows_blob
from puffin_ann.blobs import tombstones as tombstones_blob
from puffin_ann.blobs.container import fingerprint
from puffin_ann.blobs.routing import ShardEntry
from puffin_ann.engines import SearchableShard
from puffin_ann.errors import EnvironmentProblemError, FormatError, PuffinFormatError
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.puffin.reader import PuffinReader
from puffin_ann.search.cache import LocalCache
from puffin_ann.search.consistency import check_engine, check_rows
from puffin_ann.search.locators import Locators, MaskedRows
from puffin_ann.search.shard_blobs import engine_of, shard_blobs
from puffin_ann.search.versions import IndexVersion, open_puffin

log = logging.getLogger("puffin_ann")

_ORDINALS = "ordinals.npy"


@dataclass(frozen=True, eq=False)
class LoadedShard:
    """A shard or delta with the locators of its rows, memory-mapped.

    Attributes:
        entry: what the routing blob says of it.
        engine: searches it; answers ordinals.
        locators: where each row is.
        tombstones: (t,) uint32, ordinals of rows that are deleted, ascending.
    """

    entry: ShardEntry
    engine: SearchableShard
    locators: Locators
    tombstones: NDArray[np.uint32]

    def dead(self, masked: MaskedRows) -> NDArray[np.bool_] | None:
        """Mark the rows that are not live, (n,) bool; None if all are.

        Args:
            masked: rows of covered files that are not live; tombstones are dead whatever it says.

        Raises:
            BlobFormatError: the shard names a row group that its file has not.
        """
        dead = self.locators.masked(masked)
        if len(self.tombstones):
            dead = np.zeros(len(self.locators), np.bool_) if dead is None else dead
            dead[self.tombstones] = True
        return dead


def load_shard(
    io: FileIO, version: IndexVersion, shard: ShardEntry, cache: LocalCache
) -> LoadedShard:
    """Bring a shard into the local cache, if it is not there, and open it.

    Its blobs are held to each other, and to the version's small ones.

    Raises:
        FormatError: a blob is broken, or says what another contradicts; the cache keeps nothing.
        EnvironmentProblemError: the disk has no room for it, or cannot be read.
    """
    loading = _Loading(io, version, shard, cache)
    try:
        return loading.load()
    except (_SpoiltError, FormatError) as error:
        loading.forget()
        if not loading.was_cached:
            raise
        # A power failure can cut files short that had been written, and a disk spoil them.
        log.warning("%s; unpacked anew", error)
    again = _Loading(io, version, shard, cache)
    try:
        return again.load()
    except (_SpoiltError, FormatError):
        again.forget()
        raise


class _SpoiltError(EnvironmentProblemError):
    """What was unpacked cannot be opened."""


class _Loading:
    """One attempt to load a shard, and the folders of the cache that it was handed.

    Attributes:
        folders: of the engine's blob, of the rows and of the tombstones, as far as it came.
        was_cached: whether one of them was there before.
    """

    def __init__(
        self, io: FileIO, version: IndexVersion, shard: ShardEntry, cache: LocalCache
    ) -> None:
        self._io, self._version, self._shard, self._cache = io, version, shard, cache
        self._where = f"{version.file_of(shard)}: shard {shard.shard_id}"
        self.folders: list[Path] = []
        self.was_cached = False

    def load(self) -> LoadedShard:
        """Fill the folders that are not there, in an order in which each bounds the next."""
        version, shard = self._version, self._shard
        with _open(self._io, version.file_of(shard)) as reader:
            blobs = shard_blobs(reader, version, shard)
            searchable = self._engine(reader, blobs.engine)
            locators = self._locators(reader, blobs.rows)
            tombstones = self._tombstones(reader, blobs.tombstones)
        check_rows(self._where, shard, version.covered, locators, tombstones)
        return LoadedShard(shard, searchable, locators, tombstones)

    def forget(self) -> None:
        """Remove the folders: not all of them are what they should be."""
        for folder in self.folders:
            self._cache.forget(folder)

    def _engine(self, reader: PuffinReader, blob: BlobMetadata) -> SearchableShard:
        algorithm = engine_of(self._version, self._shard)

        def fill(folder: Path) -> None:
            algorithm.unpack(reader.open(blob), folder)

        folder = self._place(reader, blob, fill)
        with self._opening(folder):
            searchable = algorithm.open(folder)
        check_engine(self._where, self._version.routing, self._shard, searchable)
        return searchable

    def _locators(self, reader: PuffinReader, blob: BlobMetadata) -> Locators:
        def fill(folder: Path) -> None:
            Locators.save(rows_blob.read(reader.open(blob), self._shard.rows), folder)

        folder = self._place(reader, blob, fill)
        with self._opening(folder):
            return Locators.open(folder)

    def _tombstones(self, reader: PuffinReader, blob: BlobMetadata | None) -> NDArray[np.uint32]:
        if blob is None:
            return np.zeros(0, np.uint32)
        rows, deleted = self._shard.rows, self._shard.tombstones

        def fill(folder: Path) -> None:
            decoded = tombstones_blob.decode(reader.read(blob), rows, deleted)
            np.save(folder / _ORDINALS, np.array(decoded.to_array(), np.uint32))

        folder = self._place(reader, blob, fill)
        with self._opening(folder):
            ordinals: NDArray[np.uint32] = np.load(folder / _ORDINALS, mmap_mode="r")
            return ordinals.view(np.ndarray)

    def _place(
        self, reader: PuffinReader, blob: BlobMetadata, fill: Callable[[Path], None]
    ) -> Path:
        """Return the folder of a blob, filled if it is not there.

        By content: what the gate searched while it was staged is published under another name, and
        carried along into later files.
        """
        is_new = False

        def look() -> str:
            return f"{blob.type}:{blob.length}:{fingerprint(_content(reader, blob))}"

        def fill_new(folder: Path) -> None:
            nonlocal is_new
            is_new = True
            fill(folder)

        key = self._cache.key(f"{reader.name}:{reader.length}:{blob.offset}:{blob.length}", look)
        try:
            folder = self._cache.folder(key, fill_new)
        except FormatError as error:
            raise type(error)(f"{self._where}: {error}") from None
        self.folders.append(folder)
        self.was_cached |= not is_new
        return folder

    @contextmanager
    def _opening(self, folder: Path) -> Iterator[None]:
        """Name a folder in what goes wrong while it is opened.

        Raises:
            _SpoiltError, FormatError: it does not hold what was unpacked.
        """
        try:
            yield
        except (OSError, ValueError) as error:
            raise _SpoiltError(
                f"{folder}, unpacked of {self._where}, cannot be opened: {error}; see to the disk, "
                "or set PUFFIN_ANN_CACHE_DIR"
            ) from error
        except FormatError as error:
            raise type(error)(f"{self._where}: {error}") from None


def _content(reader: PuffinReader, blob: BlobMetadata) -> BinaryIO:
    """Return a blob's content as a stream; large blobs of ours are stored as they are."""
    return BytesIO(reader.read(blob)) if blob.compression_codec else reader.open(blob)


@contextmanager
def _open(io: FileIO, path: str) -> Iterator[PuffinReader]:
    """Open a file; that it is gone is damage, too."""
    with ExitStack() as stack:
        try:
            reader = stack.enter_context(open_puffin(io, path))
        except FileNotFoundError:
            raise PuffinFormatError(f"{path} is gone") from None
        yield reader
