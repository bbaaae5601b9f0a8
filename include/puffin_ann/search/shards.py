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
from puffin_ann.engines import SearchableShard, ShardEngine, engine
from puffin_ann.engines.delta import DELTA, DeltaEngine, DeltaShard
from puffin_ann.errors import BlobFormatError, FormatError, PuffinFormatError
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.puffin.reader import PuffinReader
from puffin_ann.search.cache import LocalCache
from puffin_ann.search.locators import Locators, MaskedRows
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


def _only(reader: PuffinReader, kind: str, index: str, shard: ShardEntry) -> BlobMetadata:
    blobs = reader.find(kind, index=index, shard=str(shard.shard_id))
    if len(blobs) != 1:
        raise PuffinFormatError(
            f"expected one {kind} blob for shard {shard.shard_id} of index {index!r}, "
            f"found {len(blobs)}"
        )
    return blobs[0]


def _algorithm(version: IndexVersion, shard: ShardEntry) -> ShardEngine | DeltaEngine:
    return DELTA if shard.kind == "delta" else engine(version.routing.algorithm)


def _content(reader: PuffinReader, blob: BlobMetadata) -> BinaryIO:
    """Return a blob's content as a stream; large blobs of ours are stored as they are."""
    return BytesIO(reader.read(blob)) if blob.compression_codec else reader.open(blob)


def load_shard(
    io: FileIO, version: IndexVersion, shard: ShardEntry, cache: LocalCache
) -> LoadedShard:
    """Bring a shard into the local cache, if it is not there, and open it.

    Raises:
        FormatError: a blob is broken; the cache keeps nothing of it.
        EnvironmentProblemError: the disk has no room for it.
    """
    folders = _cached(io, version, shard, cache)
    try:
        return _opened(version, shard, *folders)
    except (OSError, ValueError, FormatError) as error:
        # A power failure can cut files short that had been written, and a disk spoil them.
        log.warning("%s, shard %d: %s; unpacked anew", folders[0], shard.shard_id, error)
        for folder in folders:
            cache.forget(folder)
    return _opened(version, shard, *_cached(io, version, shard, cache))


def _cached(
    io: FileIO, version: IndexVersion, shard: ShardEntry, cache: LocalCache
) -> tuple[Path, ...]:
    """Return the folders of a shard's engine, its rows and its tombstones if it has any.

    They are filled if they are not there.
    """
    path = version.file_of(shard)
    with _open(io, path) as reader:
        algorithm = _algorithm(version, shard)
        built = _only(reader, algorithm.blob_type, version.index, shard)
        rows = _only(reader, rows_blob.TYPE, version.index, shard)
        tombstones = reader.find(
            tombstones_blob.TYPE, index=version.index, shard=str(shard.shard_id)
        )
        if len(tombstones) > 1 or bool(tombstones) < bool(shard.tombstones):
            raise PuffinFormatError(
                f"{path}: {len(tombstones)} tombstones blobs for shard {shard.shard_id} of index "
                f"{version.index!r}, which has {shard.tombstones} rows deleted"
            )

        def fill_engine(folder: Path) -> None:
            algorithm.unpack(reader.open(built), folder)

        def fill_rows(folder: Path) -> None:
            Locators.save(rows_blob.read(reader.open(rows)), folder)

        def fill_tombstones(folder: Path) -> None:
            decoded = tombstones_blob.decode(reader.read(tombstones[0]), shard.rows)
            np.save(folder / _ORDINALS, np.array(decoded.to_array(), np.uint32))

        def place(blob: BlobMetadata, fill: Callable[[Path], None]) -> Path:
            # By content: what the gate searched while it was staged is published under another
            # name, and carried along into later files.
            def look() -> str:
                return f"{blob.type}:{blob.length}:{fingerprint(_content(reader, blob))}"

            return cache.folder(
                cache.key(f"{path}:{reader.length}:{blob.offset}:{blob.length}", look), fill
            )

        try:
            return (
                place(built, fill_engine),
                place(rows, fill_rows),
                *(place(blob, fill_tombstones) for blob in tombstones),
            )
        except FormatError as error:
            raise type(error)(f"{path}, shard {shard.shard_id}: {error}") from None


@contextmanager
def _open(io: FileIO, path: str) -> Iterator[PuffinReader]:
    """Open a file; that it is gone is damage, too."""
    with ExitStack() as stack:
        try:
            reader = stack.enter_context(open_puffin(io, path))
        except FileNotFoundError:
            raise PuffinFormatError(f"{path} is gone") from None
        yield reader


def _opened(version: IndexVersion, shard: ShardEntry, *folders: Path) -> LoadedShard:
    searchable = _algorithm(version, shard).open(folders[0])
    locators = Locators.open(folders[1])
    tombstones = np.zeros(0, np.uint32)
    if len(folders) > 2:
        tombstones = np.load(folders[2] / _ORDINALS, mmap_mode="r").view(np.ndarray)
    where = f"{version.file_of(shard)}: shard {shard.shard_id}"
    if not len(locators) == searchable.rows == shard.rows:
        raise BlobFormatError(
            f"{where} has {searchable.rows} vectors, {len(locators)} locators and {shard.rows} "
            "rows by the routing blob"
        )
    if len(tombstones) != shard.tombstones or int(tombstones.max(initial=0)) >= max(1, shard.rows):
        raise BlobFormatError(
            f"{where} has {len(tombstones)} tombstones, {shard.tombstones} by the routing blob"
        )
    if searchable.dimension != version.routing.dimension:
        raise BlobFormatError(
            f"{where} has vectors of {searchable.dimension} dimensions, "
            f"{version.routing.dimension} by the routing blob"
        )
    if isinstance(searchable, DeltaShard):
        _check_partitions(where, searchable, len(version.routing.centroids))
    return LoadedShard(shard, searchable, locators, tombstones)


def _check_partitions(where: str, delta: DeltaShard, partitions: int) -> None:
    if delta.rows and int(delta.partitions.max()) >= partitions:
        raise BlobFormatError(
            f"{where} has a row of partition {int(delta.partitions.max())}, of {partitions}"
        )
