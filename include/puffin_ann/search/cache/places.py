"""Where on local disk a blob of a shard is unpacked: in the cache, or apart from it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from puffin_ann.blobs.encoding.container import fingerprint
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.puffin.reader import PuffinReader
from puffin_ann.search.cache.local_cache import Fill, LocalCache

Place = Callable[[PuffinReader, BlobMetadata, Fill], AbstractContextManager[Path]]
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

    def place(reader: PuffinReader, blob: BlobMetadata, fill: Fill) -> AbstractContextManager[Path]:
        def look() -> str:
            content = fingerprint(_content(reader, blob))
            return f"{scope}:{blob.type}:{blob.length}:{content}"

        where = f"{reader.name}:{reader.length}:{blob.type}:{blob.offset}:{blob.length}"
        return cache.held(cache.key(f"{scope}:{where}", look), fill, blob.length)

    return place


def apart(cache: LocalCache, why: Exception) -> Place:
    """Have blobs unpacked into folders that are removed after the body.

    Args:
        cache: that did not do.
        why: what is wrong with it.
    """
    return lambda reader, blob, fill: cache.apart(fill, why)


def _content(reader: PuffinReader, blob: BlobMetadata) -> BinaryIO:
    """Return a blob's content as a stream; large blobs of ours are stored as they are."""
    return BytesIO(reader.read(blob)) if blob.compression_codec else reader.open(blob)
