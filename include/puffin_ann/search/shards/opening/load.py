"""A shard, brought from its Puffin file to local disk and opened for search."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyroaring import BitMap

from puffin_ann.array_files import load_array
from puffin_ann.blobs.encoding import stored_vectors
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.version import tombstones as tombstones_blob
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.engines import SearchableShard
from puffin_ann.engines.reranked import RowVectors, reranked
from puffin_ann.errors import FormatError, LocalCopyError
from puffin_ann.puffin.reader import BlobReader
from puffin_ann.search.cache.local_cache import Fill, LocalCache
from puffin_ann.search.cache.places import Place, apart, in_cache
from puffin_ann.search.shards.opening.blobs import engine_of, shard_blobs
from puffin_ann.search.version.consistency import check_engine, check_rows
from puffin_ann.search.version.index_files import NOTHING_READ, StoredBlob, missing_is_damage
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.row_locators import Locators, MaskedRows

ReadTable = Callable[[Locators], RowVectors]
"""Returns what reads the vectors of rows that are where locators say."""

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

    def deleted(self, masked: MaskedRows) -> NDArray[np.bool_] | None:
        """Mark the rows that are not live, (n,) bool; None if all are.

        Args:
            masked: rows of covered files that are not live; rows with a tombstone are marked
                whatever it says.

        Raises:
            BlobFormatError: the shard names a row group that its file has not.
        """
        deleted = self.locators.masked(masked)
        if len(self.tombstones):
            deleted = np.zeros(len(self.locators), np.bool_) if deleted is None else deleted
            deleted[self.tombstones] = True
        return deleted


def load_shard(
    io: FileIO,
    version: IndexVersion,
    shard: ShardEntry,
    cache: LocalCache,
    scope: str,
    table: ReadTable | None = None,
    read: Mapping[str, BlobReader] = NOTHING_READ,
) -> LoadedShard:
    """Bring a shard into the local cache, if it is not there, and open it.

    Its blobs are held to each other, and to the version's small ones. Where the cache does not give
    back what was unpacked into it, the shard is searched without.

    Args:
        io: reads the files.
        version: of the index.
        shard: an entry of its routing blob.
        cache: local disk.
        scope: names the table for the cache, see `scope_of`.
        table: returns what reads vectors that shards have not as they are; None where the shard's
            are not asked for.
        read: files by their location of which blobs were read, see `read_together`.

    Raises:
        FormatError: a blob is broken, or says what another contradicts; the cache keeps nothing.
        EnvironmentProblemError: no local disk can be written, or read again.
    """
    problem: Exception
    for is_again in (False, True):
        loading = _Loading(io, version, shard, in_cache(cache, scope), table, read)
        try:
            return loading.load()
        except (LocalCopyError, FormatError) as error:
            for folder in loading.folders:
                cache.forget(folder)
            if isinstance(error, FormatError) and (is_again or not loading.was_there):
                raise
            # A power failure can cut files short that had been written, and a disk corrupt them.
            log.warning("%s; unpacked again", error)
            problem = error
    return _Loading(io, version, shard, apart(cache, problem), table).load()


class _Loading:
    """One attempt to load a shard, and the folders on local disk that it was handed.

    Attributes:
        folders: of the engine's blob, of the rows and of the tombstones, as far as it came.
        was_there: whether one of them was there before.
    """

    def __init__(
        self,
        io: FileIO,
        version: IndexVersion,
        shard: ShardEntry,
        place: Place,
        table: ReadTable | None,
        read: Mapping[str, BlobReader] = NOTHING_READ,
    ) -> None:
        self._io, self._version, self._shard, self._place = io, version, shard, place
        self._table, self._read = table, read
        self._errors: NDArray[np.float32] | None = None
        self._where = f"{version.file_of(shard)}: shard {shard.shard_id}"
        self.folders: list[Path] = []
        self.was_there = False

    def load(self) -> LoadedShard:
        """Fill the folders that are not there, in an order in which each bounds the next."""
        version, shard = self._version, self._shard
        with version.files(self._io, self._read) as files:
            blobs = shard_blobs(files, version, shard)
            searchable = self._engine(blobs.engine)
            locators = self._locators(blobs.rows)
            tombstones = self._tombstones(blobs.tombstones, blobs.added)
        check_rows(self._where, shard, version.covered, locators, tombstones)
        if self._table is not None:
            table = self._table
            searchable = reranked(searchable, self._errors, lambda: table(locators))
        return LoadedShard(shard, searchable, locators, tombstones)

    def _engine(self, blob: StoredBlob) -> SearchableShard:
        algorithm = engine_of(self._version, self._shard)

        def fill(folder: Path) -> None:
            algorithm.unpack(blob.open(), folder)

        with self._placed(blob, fill) as folder:
            searchable = algorithm.open(folder)
            self._errors = stored_vectors.known(folder).errors
        routing = self._version.routing
        check_engine(self._where, routing, self._shard, searchable, self._errors)
        return searchable

    def _locators(self, blob: StoredBlob) -> Locators:
        def fill(folder: Path) -> None:
            Locators.save(rows_blob.read(blob.open(), self._shard.rows, identities=False), folder)

        with self._placed(blob, fill) as folder:
            return Locators.open(folder)

    def _tombstones(self, blob: StoredBlob | None, added: BitMap) -> NDArray[np.uint32]:
        beside = np.asarray(added.to_array(), np.uint32)
        if blob is None:
            return beside
        rows, deleted = self._shard.rows, self._shard.tombstones - len(added)

        def fill(folder: Path) -> None:
            decoded = tombstones_blob.decode(blob.read(), rows, deleted)
            np.save(folder / _ORDINALS, np.array(decoded.to_array(), np.uint32))

        with self._placed(blob, fill) as folder:
            ordinals: NDArray[np.uint32] = load_array(folder / _ORDINALS, mapped=True)
            if len(beside):
                return np.union1d(ordinals, beside)
            return ordinals.view(np.ndarray)

    @contextmanager
    def _placed(self, blob: StoredBlob, fill: Fill) -> Iterator[Path]:
        """Give the folder of a blob, filled if it is not there, to be opened in the body.

        Raises:
            LocalCopyError: it does not hold what was unpacked.
            FormatError: the blob is not sound.
        """
        is_new = False

        def fill_new(folder: Path) -> None:
            nonlocal is_new
            is_new = True
            with missing_is_damage(blob.reader.name):
                fill(folder)

        try:
            with self._place(blob, fill_new) as folder:
                self.folders.append(folder)
                self.was_there |= not is_new
                with self._opening(folder):
                    yield folder
        except FormatError as error:
            raise type(error)(f"{self._where}: {error}") from None

    @contextmanager
    def _opening(self, folder: Path) -> Iterator[None]:
        """Name a folder in what goes wrong while it is opened."""
        try:
            yield
        except (OSError, ValueError, LocalCopyError) as error:
            raise LocalCopyError(
                f"{folder}, unpacked of {self._where}, cannot be opened: {error}; check the disk "
                "and what removes files from it, or set PUFFIN_ANN_CACHE_DIR"
            ) from error
