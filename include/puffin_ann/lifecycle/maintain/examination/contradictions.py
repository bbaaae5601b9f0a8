"""Whether the blobs of a published index fit together, by unpacking each of them.

Checksums tell that bytes are those that were written; a search tells of a shard that contradicts
the rest only once it is asked. This looks at all of them, one at a time, and at what no search
could afford: that together they hold every covered row once.
"""

from dataclasses import dataclass

from pyiceberg.io import FileIO

from puffin_ann.declaration import CENTROID
from puffin_ann.errors import FormatError
from puffin_ann.lifecycle.versions.unreadable import (
    find_in_lost_files,
    find_unreadable,
    read_cells,
)
from puffin_ann.search.files.tier import bounds_of, load_centroids
from puffin_ann.search.version.index_version import load_version


@dataclass(frozen=True)
class Contradiction:
    """What the blobs of an index contradict each other in.

    Attributes:
        what: in one sentence.
        shards: those that cannot be read; empty where it is the version as a whole, or the cells.
        is_of_cells: the cells cannot be read.
    """

    what: str
    shards: tuple[int, ...] = ()
    is_of_cells: bool = False


def contradictions(
    io: FileIO, path: str, index: str, length: int | None, *, unpack: bool
) -> list[Contradiction]:
    """Return what the blobs of an index in a file contradict each other in.

    Args:
        io: of the table.
        path: of the file.
        index: its name.
        length: bytes of the file.
        unpack: look at its shards, too: it takes the room of the largest one on the disk, and the
            time to read them all. Else only whether the files that it names are there.

    Raises:
        FileNotFoundError, StoreUnavailableError: as `load_version`.
        EnvironmentProblemError: the disk has no room for a shard.
    """
    try:
        version = load_version(io, path, index, length=length)
        if version is None:
            return []
        if unpack and version.routing.algorithm == CENTROID:
            bounds_of(load_centroids(io, version), version)
    except FormatError as error:
        return [Contradiction(str(error))]
    unreadable = find_unreadable(io, version) if unpack else find_in_lost_files(io, version)
    lost_cells = unreadable.cells or read_cells(io, version)[1]
    found: dict[str, list[int]] = {}
    for shard, what in sorted(unreadable.shards.items()):
        found.setdefault(what, []).append(shard)
    return [
        *([Contradiction(lost_cells, is_of_cells=True)] if lost_cells else []),
        *(Contradiction(what, tuple(shards)) for what, shards in found.items()),
    ]
