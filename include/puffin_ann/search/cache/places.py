"""Where on local disk a blob of a shard is unpacked: in the cache, or apart from it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from puffin_ann.search.cache.local_cache import Fill, LocalCache
from puffin_ann.search.index_files import StoredBlob

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

        def look() -> str:
            return f"{scope}:{stored.type}:{stored.length}:{blob.fingerprint}"

        where = f"{reader.name}:{reader.length}:{stored.type}:{stored.offset}:{stored.length}"
        return cache.held(cache.key(f"{scope}:{where}", look), fill, stored.length)

    return place


def apart(cache: LocalCache, why: Exception) -> Place:
    """Have blobs unpacked into folders that are removed after the body.

    Args:
        cache: that did not do.
        why: what is wrong with it.
    """
    return lambda blob, fill: cache.apart(fill, why)
