"""What tells an object of ours from others, however the location of its folder is written.

One folder has many spellings: `a//b`, `a/./b`, a link, another scheme or port. So where something
is about to be removed, what is named is not compared by where it is said to lie, but by its name:
the names of index files and manifest lists are made of a UUID or a hash. Equal names elsewhere
keep a file that could go, and never let one go that is needed.
"""

from collections.abc import Iterable
from urllib.parse import unquote

from pyiceberg.table import Table

from puffin_ann.lake.metadata.registered import NAMED_BY
from puffin_ann.lake.store.locations import is_staging_folder


def object_name(location: str) -> str:
    """Return the name of an object, or of a run's folder: of staged ones with index and run."""
    parts = _parts(location)
    start = next((place for place, part in enumerate(parts) if is_staging_folder(part)), -1)
    return "/".join(parts[start:])


def names_with_folders(locations: Iterable[str]) -> frozenset[str]:
    """Return the names of objects, and of the folders of runs that they are in."""
    found: set[str] = set()
    for location in locations:
        name = object_name(location)
        found.add(name)
        while "/" in name:
            name = name.rpartition("/")[0]
            found.add(name)
    return frozenset(found)


def needed_locations(table: Table) -> list[str]:
    """Return the locations of a table's statistics and manifest lists."""
    return [
        *(entry.statistics_path for entry in table.metadata.statistics),
        *(snapshot.manifest_list for snapshot in table.snapshots() if snapshot.manifest_list),
    ]


def named_locations(table: Table) -> list[str]:
    """Return all locations that a table's metadata names, summaries of snapshots included."""
    summaries = (snapshot.summary for snapshot in table.snapshots() if snapshot.summary)
    named = (summary.additional_properties.get(NAMED_BY) for summary in summaries)
    return [*needed_locations(table), *(path for path in named if path)]


def _parts(location: str) -> list[str]:
    """Return the parts of a location; what is encoded counts as what it stands for."""
    text = unquote(location) if "%" in location else location
    return [part for part in text.split("/") if part not in ("", ".")]
