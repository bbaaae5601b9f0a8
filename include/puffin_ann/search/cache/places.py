"""Where on local disk a blob of a shard is unpacked: in the cache, or apart from it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.search.cache.local_cache import Fill, LocalCache
from puffin_ann.search.version.index_files import DIGEST, BlobPlace, StoredBlob

Place = Callable[[StoredBlob, Fill], AbstractContextManager[Path]]
"""Gives the folder of a blob, filled if it is not there, for as long as the body runs."""


def in_cache(cache: LocalCache, scope: str) -> Place:
    """Have blobs unpacked into the cache.

    They are kept by content: what the gate searched while it was staged is published under another
    name, and carried along into later files. The name of a content is made of checksums,
    which the author of the content can forge: so no table finds what another one stored.

    Args:
        cache: local disk.
        scope: names the table, see `scope_of`.
    """

    def place(blob: StoredBlob, fill: Fill) -> AbstractContextManager[Path]:
        reader, stored = blob.reader, blob.metadata
        where = _where(scope, reader.name, reader.length, stored)
        key = cache.key(where, lambda: _key(scope, stored, blob.fingerprint))
        return cache.held(key, fill, stored.length)

    return place


def is_in_cache(cache: LocalCache, scope: str, place: BlobPlace) -> bool:
    """Tell whether the cache has a blob, as far as that is known without reading of the blob.

    Args:
        cache: local disk.
        scope: names the table, see `scope_of`.
        place: of the blob.
    """
    where = _where(scope, place.path, place.file_length, place.metadata)
    digest = place.digest or place.metadata.properties.get(DIGEST)
    key = _key(scope, place.metadata, digest) if digest else None
    return cache.has(where, key)


def _where(scope: str, path: str, length: int, blob: BlobMetadata) -> str:
    return f"{scope}:{path}:{length}:{blob.type}:{blob.offset}:{blob.length}"


def _key(scope: str, blob: BlobMetadata, fingerprint: str) -> str:
    return f"{scope}:{blob.type}:{blob.length}:{fingerprint}"


def apart(cache: LocalCache, why: Exception) -> Place:
    """Have blobs unpacked into folders that are removed after the body.

    Args:
        cache: that did not do.
        why: what is wrong with it.
    """
    return lambda blob, fill: cache.apart(fill, why)
