"""Where the blobs of a shard are, found and measured before one of them is read."""

from dataclasses import dataclass

from pyroaring import BitMap

from puffin_ann.blobs.encoding import stored_vectors
from puffin_ann.blobs.shards import identities as identities_blob
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.version import tombstones as tombstones_blob
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.engines import ShardEngine, engine
from puffin_ann.engines.delta import DELTA, DeltaEngine
from puffin_ann.errors import PuffinFormatError
from puffin_ann.search.version.index_files import StoredBlob, VersionFiles
from puffin_ann.search.version.index_version import IndexVersion


@dataclass(frozen=True)
class ShardBlobs:
    """The blobs of a shard or delta.

    Attributes:
        engine: of its engine, with its vectors.
        rows: where they are.
        tombstones: which of them are deleted; None if it has no such blob.
        added: rows that are deleted and that blob does not name, no more than there are rows.
    """

    engine: StoredBlob
    rows: StoredBlob
    tombstones: StoredBlob | None
    added: BitMap


def engine_of(version: IndexVersion, shard: ShardEntry) -> ShardEngine | DeltaEngine:
    """Return what opens a shard or delta of a version."""
    return DELTA if shard.kind == "delta" else engine(version.routing.algorithm)


def least_bytes(version: IndexVersion, shard: ShardEntry) -> int:
    """Return the fewest bytes that the blob of a shard has for the rows that it is said to have."""
    form = "float32" if shard.kind == "delta" else version.routing.vectors
    return stored_vectors.least_bytes(form, shard.rows, version.routing.dimension)


def shard_blobs(files: VersionFiles, version: IndexVersion, shard: ShardEntry) -> ShardBlobs:
    """Find the blobs of a shard among the files of its version.

    The rows that the routing blob claims are held to what is there of each, so that whatever is
    made of a count of rows takes no more than a small multiple of the bytes that are stored.

    Raises:
        PuffinFormatError: one is missing or there twice, or too short for the shard's rows.
    """
    number, file = shard.shard_id, shard.file
    found = files.only(engine_of(version, shard).blob_type, number, file)
    where = f"{found.reader.name}: shard {number} of index {version.index!r}"
    made = found.metadata
    if made.compression_codec is not None:
        raise PuffinFormatError(
            f"{where}: blob {made.type} is compressed ({made.compression_codec}), and is to be "
            "read in place"
        )
    needed = least_bytes(version, shard)
    if needed > made.length:
        raise PuffinFormatError(
            f"{where} has {made.length} bytes; {shard.rows} rows by the routing blob need {needed}"
        )
    tombstones = files.find(tombstones_blob.TYPE, number, file)
    added = version.added_to(shard)
    if len(tombstones) > 1 or bool(tombstones) < (shard.tombstones > len(added)):
        raise PuffinFormatError(
            f"{where}: {len(tombstones)} tombstones blobs; {shard.tombstones} rows are deleted, of "
            f"which {len(added)} are named apart"
        )
    rows = files.only(rows_blob.TYPES, number, file)
    return ShardBlobs(found, rows, tombstones[0] if tombstones else None, added)


def identities_of(
    files: VersionFiles, version: IndexVersion, shard: ShardEntry
) -> StoredBlob | None:
    """Return the blob with the identities of a shard's rows; None: the rows blob may have them.

    Raises:
        PuffinFormatError: there are several.
    """
    found = files.find(identities_blob.TYPE, shard.shard_id, shard.file)
    if len(found) > 1:
        raise PuffinFormatError(
            f"{version.file_of(shard)}: shard {shard.shard_id} of index {version.index!r}: "
            f"{len(found)} identities blobs"
        )
    return found[0] if found else None
