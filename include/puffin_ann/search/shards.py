"""A shard, brought from its Puffin file to local disk and opened for search."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from puffin_ann.blobs import rows as rows_blob
from puffin_ann.blobs.container import fingerprint
from puffin_ann.blobs.routing import ShardEntry
from puffin_ann.engines import SearchableShard, engine
from puffin_ann.errors import BlobFormatError, FormatError, PuffinFormatError
from puffin_ann.lake.diff import ALL, Positions
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.puffin.reader import PuffinReader
from puffin_ann.search.cache import LocalCache
from puffin_ann.search.versions import IndexVersion, open_puffin

log = logging.getLogger("puffin_ann")

_LOCATORS = ("file_ids", "row_groups", "offsets")


@dataclass(frozen=True)
class LoadedShard:
    """One shard with the locators of its rows, memory-mapped.

    Attributes:
        entry: what the routing blob says of it.
        engine: searches it; answers ordinals.
        file_ids: (n,) uint32, non-decreasing with row group and offset: locator order.
        row_groups: (n,) uint32.
        offsets: (n,) uint32, row offset inside the row group.
    """

    entry: ShardEntry
    engine: SearchableShard
    file_ids: NDArray[np.uint32]
    row_groups: NDArray[np.uint32]
    offsets: NDArray[np.uint32]

    def dead(
        self, masked: Mapping[int, Positions], row_group_starts: Mapping[int, NDArray[np.int64]]
    ) -> NDArray[np.bool_] | None:
        """Mark the rows that are not live; None if all are.

        Args:
            masked: by file id, positions in the file that are not live, or `ALL`.
            row_group_starts: by file id, position in the file of each row group's first row.
        """
        dead: NDArray[np.bool_] | None = None
        for file_id, positions in masked.items():
            first = int(np.searchsorted(self.file_ids, file_id, side="left"))
            last = int(np.searchsorted(self.file_ids, file_id, side="right"))
            if first == last:
                continue
            if dead is None:
                dead = np.zeros(len(self.file_ids), dtype=np.bool_)
            if positions is ALL:
                dead[first:last] = True
                continue
            starts = row_group_starts[file_id]
            here = starts[self.row_groups[first:last]] + self.offsets[first:last]
            dead[first:last] = np.isin(here, np.asarray(positions.to_array(), dtype=np.int64))
        return dead


def _only(reader: PuffinReader, kind: str, index: str, shard: ShardEntry) -> BlobMetadata:
    blobs = reader.find(kind, index=index, shard=str(shard.shard_id))
    if len(blobs) != 1:
        raise PuffinFormatError(
            f"expected one {kind} blob for shard {shard.shard_id} of index {index!r}, "
            f"found {len(blobs)}"
        )
    return blobs[0]


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
) -> tuple[Path, Path]:
    """Return the folders of a shard's engine and of its rows, filled if they are not there."""
    path = version.file_of(shard)
    with _open(io, path) as reader:
        algorithm = engine(version.routing.algorithm)
        built = _only(reader, algorithm.blob_type, version.index, shard)
        rows = _only(reader, rows_blob.TYPE, version.index, shard)

        def fill_engine(folder: Path) -> None:
            algorithm.unpack(reader.open(built), folder)

        def fill_rows(folder: Path) -> None:
            decoded = rows_blob.read(reader.open(rows))
            for name in _LOCATORS:
                np.save(folder / f"{name}.npy", getattr(decoded, name))

        def place(blob: BlobMetadata, fill: Callable[[Path], None]) -> Path:
            # By content: what the gate searched while it was staged is published under another
            # name, and carried along into later files.
            def look() -> str:
                return f"{blob.type}:{blob.length}:{fingerprint(reader.open(blob))}"

            return cache.folder(
                cache.key(f"{path}:{reader.length}:{blob.offset}:{blob.length}", look), fill
            )

        try:
            return place(built, fill_engine), place(rows, fill_rows)
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


def _opened(
    version: IndexVersion, shard: ShardEntry, engine_folder: Path, rows_folder: Path
) -> LoadedShard:
    searchable = engine(version.routing.algorithm).open(engine_folder)
    # As plain arrays: indexing a memmap costs several times as much.
    arrays = [
        np.load(rows_folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in _LOCATORS
    ]
    if not all(len(array) == searchable.rows == shard.rows for array in arrays):
        raise BlobFormatError(
            f"{version.file_of(shard)}: shard {shard.shard_id} has {searchable.rows} vectors, "
            f"{len(arrays[0])} locators and {shard.rows} rows by the routing blob"
        )
    return LoadedShard(shard, searchable, *arrays)
