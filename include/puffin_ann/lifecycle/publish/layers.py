"""Which blobs of a new version go into its file, and which stay in the files that have them.

A version that is published under a tag names blobs of earlier files, which tags hold, too, so that
it costs what changed. Every file that is named costs the table a tag, and may have blobs that
nobody needs any more: so files of which little is needed, and the smallest of many, are gathered.
A file is copied with others that have as much together, hence each byte a few times in its life.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import compress

from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.blobs.version.directory import Directory, NamedBlob, NamedFile
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.search.version.index_files import DIGEST, BlobPlace

MOST_FILES = 12
"""Most other files that a version names."""

LEAST_NEEDED = 0.25
"""Share of a file's bytes under which what is needed of it is copied, so that it can go."""

SMALL_PARTITIONS = 8 << 10
"""Bytes of cells that every version has a copy of: more would be most of what a refresh writes."""

SMALL = 64 << 10
"""Bytes of a file that is left alone, however little of it is needed."""


@dataclass(frozen=True)
class Layers:
    """The blobs of a new version.

    Attributes:
        copied: into its file.
        named: that stay where they are.
    """

    copied: tuple[BlobPlace, ...]
    named: tuple[BlobPlace, ...]

    @property
    def files(self) -> frozenset[str]:
        """The files that the version names."""
        return frozenset(place.path for place in self.named)

    @property
    def directory(self) -> Directory | None:
        """What the version's file says of the others; None if there are none."""
        if not self.named:
            return None
        lengths = {place.path: place.file_length for place in self.named}
        numbers = {path: number for number, path in enumerate(sorted(lengths))}
        return Directory(
            tuple(NamedFile(path.rpartition("/")[2], lengths[path]) for path in numbers),
            tuple(_named(place.metadata, numbers[place.path]) for place in self.named),
        )


def layers_of(places: Sequence[BlobPlace], held: Set[str], whole_bytes: int) -> Layers:
    """Part the blobs of a new version into those that are copied and those that are named.

    Args:
        places: of all its blobs, as staged or published.
        held: files that tags of ours hold.
        whole_bytes: an index of no more bytes is one file.
    """
    gathered = _files_to_gather(places, held, whole_bytes)
    is_copied = [place.path in gathered or _has_copies(place) for place in places]
    named = (place for place, copied in zip(places, is_copied, strict=True) if not copied)
    return Layers(tuple(compress(places, is_copied)), tuple(named))


def _has_copies(place: BlobPlace) -> bool:
    """Tell whether each version has a blob itself: without its cells none can be searched well."""
    return place.metadata.type == partitions_blob.TYPE and place.metadata.length <= SMALL_PARTITIONS


def _files_to_gather(places: Iterable[BlobPlace], held: Set[str], whole_bytes: int) -> set[str]:
    needed: Counter[str] = Counter()
    lengths: dict[str, int] = {}
    for place in places:
        needed[place.path] += place.metadata.length
        lengths[place.path] = place.file_length
    if needed.total() <= whole_bytes:
        return set(needed)
    gathered = {
        path
        for path, size in needed.items()
        if path not in held or size < LEAST_NEEDED * lengths[path] > LEAST_NEEDED * SMALL
    }
    return gathered | set(_smallest(needed, gathered))


def _smallest(needed: Mapping[str, int], but: Set[str]) -> list[str]:
    """Return the files of which the least is needed, if too many are.

    The next larger one is among them as long as it is no larger than those before it together:
    what is copied with it then is a file of at least half more.
    """
    rest = sorted(needed.keys() - but, key=lambda path: (needed[path], path))
    if len(rest) <= MOST_FILES:
        return []
    gathered = 0
    for place, path in enumerate(rest):
        if place > len(rest) - MOST_FILES and needed[path] > gathered:
            return rest[:place]
        gathered += needed[path]
    return rest


def _named(blob: BlobMetadata, file: int) -> NamedBlob:
    shard = blob.properties.get("shard")
    return NamedBlob(
        file=file,
        type=blob.type,
        shard=None if shard is None else int(shard),
        codec=blob.compression_codec,
        offset=blob.offset,
        length=blob.length,
        snapshot_id=blob.snapshot_id,
        sequence_number=blob.sequence_number,
        digest=blob.properties.get(DIGEST, ""),
    )
