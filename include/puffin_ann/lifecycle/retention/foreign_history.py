"""What metadata files say that are not of a table's history: others may have the table, too."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.metadata.foreign import Foreign, Reach
from puffin_ann.lake.store.locations import METADATA_PATH, metadata_folder

SHOWN = 5


@dataclass(frozen=True)
class Told:
    """Something that is worth knowing about the metadata in reach.

    Attributes:
        file: a metadata file, the newest of those it is about; empty if it is about none.
        what: in one sentence.
        remedy: what to do about it.
        is_problem: whether something should be done; else it is merely told.
    """

    file: str
    what: str
    remedy: str
    is_problem: bool


def describe(reach: Reach) -> list[Told]:
    """Say what is to be known of the metadata in reach: that the table may be another's, too."""
    return [*blocking(reach), *_others(reach), *_strays(reach)]


def blocking(reach: Reach) -> list[Told]:
    """Say why nothing at all may be removed, if that is so."""
    return [*_elsewhere(reach), *_unknown(reach)]


def _elsewhere(reach: Reach) -> list[Told]:
    if not reach.elsewhere:
        return []
    remedy = (
        "set the table's location to the folder that holds 'metadata/', or the property "
        f"'{METADATA_PATH}' to where its metadata is; until then nothing is removed"
    )
    return [Told("", f"{reach.elsewhere}: its files may be another table's", remedy, True)]


def _unknown(reach: Reach) -> list[Told]:
    found = []
    for foreign in reach.foreign:
        if foreign.kind == "damaged":
            what = f"what {foreign.location} names is not known, so nothing is removed: "
            what += foreign.problem
            remedy = f"if no catalog points to it, delete it, or {_way_out(reach, [foreign])}"
            found.append(Told(foreign.location, what, remedy, True))
        elif foreign.kind == "unreadable":
            what = f"nothing is removed while it is not known what it names: {foreign.problem}"
            remedy = "try again when the store gives it, or see why it does not"
            found.append(Told(foreign.location, what, remedy, True))
    if reach.uncounted:
        what = f"{reach.uncounted:,} more foreign metadata files than can be read lie in "
        what += f"{metadata_folder(reach.table)}, so nothing is removed"
        found.append(Told("", what, "move the other table's metadata elsewhere", True))
    return found


def _others(reach: Reach) -> list[Told]:
    """Tell of other tables and of second registrations, each once."""
    groups: dict[tuple[str, str], list[Foreign]] = {}
    for foreign in reach.foreign:
        if foreign.kind in ("other table", "other history"):
            groups.setdefault((foreign.kind, foreign.table_uuid), []).append(foreign)
    found = []
    for (kind, table_uuid), files in groups.items():
        newest = max(files, key=lambda foreign: foreign.updated_ms)
        remedy = f"if no catalog points to any of them, {_way_out(reach, files)}"
        if kind == "other table":
            what = f"{len(files)} metadata files of another table, {table_uuid}, lie beside this "
            what += "table's: it is there, too, or was; what they name is kept"
        else:
            what = f"{len(files)} metadata files are not of this catalog entry's history: the table"
            what += " is registered a second time, or the catalog was restored from a backup; what "
            what += "they name is kept"
            remedy = f"let one catalog alone write the table; {remedy}"
        found.append(Told(newest.location, what, remedy, kind == "other history"))
    return found


def _strays(reach: Reach) -> list[Told]:
    strays = sorted(
        (foreign for foreign in reach.foreign if foreign.kind == "single commit"),
        key=lambda foreign: -foreign.updated_ms,
    )
    what = (
        "a metadata file that is not of this catalog entry's history: a commit lost a race, or the "
        "table is registered a second time; what it names is kept"
    )
    return [
        Told(
            foreign.location,
            what,
            f"none needed: it is ignored when it is older than the table's metadata log; if "
            f"no catalog points to it, {_way_out(reach, [foreign])}",
            False,
        )
        for foreign in strays[:SHOWN]
    ]


def _way_out(reach: Reach, files: Iterable[Foreign]) -> str:
    """Return the command by which files are ignored, as a shell takes it."""
    ordered = sorted(files, key=lambda foreign: (foreign.updated_ms, foreign.location))
    named = (f"--forget-metadata {shlex.quote(_shortest(reach, foreign))}" for foreign in ordered)
    return f"run: puffin-ann clean {shlex.quote(name_of(reach.table))} {' '.join(named)}"


def _shortest(reach: Reach, foreign: Foreign) -> str:
    """Return the name of a file, or its location where others have that name, too."""
    name = foreign.location.rpartition("/")[2]
    alike = [file for file in reach.foreign if file.location.rpartition("/")[2] == name]
    return name if len(alike) == 1 else foreign.location
