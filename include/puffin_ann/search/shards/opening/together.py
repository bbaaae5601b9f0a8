"""Read the blobs of small shards at once, so that what is brought costs one round trip."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

from pyiceberg.io import FileIO

from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.version import tombstones as tombstones_blob
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.errors import FormatError
from puffin_ann.lake.store.ranges import Range, is_local, read_ranges
from puffin_ann.lake.store.sparse_file import SparseFile
from puffin_ann.puffin.reader import BlobReader
from puffin_ann.puffin.streams import ReadableStream
from puffin_ann.search.shards.opening.blobs import engine_of
from puffin_ann.search.version.index_files import NOTHING_READ, BlobPlace, VersionFiles
from puffin_ann.search.version.index_version import IndexVersion

MOST_BYTES = 64 << 20
"""Of blobs that are held in memory until they are unpacked; larger shards are brought in pieces."""


def read_together(
    io: FileIO,
    version: IndexVersion,
    entries: Sequence[ShardEntry],
    is_there: Callable[[BlobPlace], bool],
) -> Mapping[str, BlobReader]:
    """Return files by their location that have blobs of shards in memory; others as they are asked.

    Nothing is read on local disk, where that would save nothing; nor of what is damaged or gone, as
    far as that shows here: whoever opens the shard tells it.

    Args:
        io: reads the files.
        version: of the index.
        entries: of the shards.
        is_there: tells of a blob that nobody needs it.

    Raises:
        StoreUnavailableError: a file's store does not answer.
    """
    if not entries or is_local(version.path):
        return NOTHING_READ
    try:
        with version.files(io) as files:
            places = _within_bounds(files, version, entries, is_there)
            data = read_ranges(io, [place.range(0, place.metadata.length) for place in places])
    except FormatError:
        return NOTHING_READ
    streams: dict[str, SparseFile] = {}
    for place, blob in zip(places, data, strict=True):
        if place.path not in streams:
            fetch = partial(_fetch, io, place.path)
            streams[place.path] = SparseFile(place.file_length, fetch)
        streams[place.path].put(place.metadata.offset, blob)
    lengths = {place.path: place.file_length for place in places}
    return {
        path: BlobReader(cast(ReadableStream, stream), name=path, length=lengths[path])
        for path, stream in streams.items()
    }


def _within_bounds(
    files: VersionFiles,
    version: IndexVersion,
    entries: Sequence[ShardEntry],
    is_there: Callable[[BlobPlace], bool],
) -> list[BlobPlace]:
    """Return where the blobs are that are wanted, of as many shards as may be held."""
    found: list[BlobPlace] = []
    left = MOST_BYTES
    for entry in entries:
        kinds = (engine_of(version, entry).blob_type, rows_blob.TYPES, tombstones_blob.TYPE)
        of_shard = [
            place
            for kind in kinds
            for place in files.places(kind, entry.shard_id, entry.file)
            if not is_there(place)
        ]
        size = sum(place.metadata.length for place in of_shard)
        if size <= left:
            found += of_shard
            left -= size
    return found


def _fetch(io: FileIO, path: str, start: int, stop: int) -> bytes:
    return bytes(read_ranges(io, [Range(path, start, stop)])[0])
