"""Which versions of which indexes were dropped: said by properties of the table.

A version stays in files that hold others besides, and in files that earlier metadata names, until
clean-up removes them. The property tells it from one whose registration was lost, which the guard
would restore. It names runs, so that an index built again under the same name is another.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from puffin_ann.foreign_json import long_of, object_of, parse, text_of
from puffin_ann.lake.catalog.index_snapshots import tag_of

PREFIX = "puffin-ann.dropped."
"""What the names of such properties begin with; the name of the index follows."""


@dataclass(frozen=True)
class Dropped:
    """Versions of one index that were dropped.

    Attributes:
        versions: the runs that published them.
        sequence_number: of the table when it was dropped; snapshots up to it are no sign that the
            index should be there.
        at_ms: when it was dropped, milliseconds since 1970.
        renamed_to: the name that the same commit published it under; empty if it was just dropped.
    """

    versions: frozenset[str] = frozenset()
    sequence_number: int = -1
    at_ms: int = 0
    renamed_to: str = ""


NEVER = Dropped()


def find_dropped(table: Table) -> dict[str, Dropped]:
    """Return by index what was dropped; a property that cannot be read counts as none."""
    found = {}
    for name, text in table.properties.items():
        if name.startswith(PREFIX):
            found[name.removeprefix(PREFIX)] = _parsed(text)
    return found


def mark(
    table: Table, index: str, versions: Iterable[str], at_ms: int, *, renamed_to: str = ""
) -> dict[str, str]:
    """Return the property by which versions of an index count as dropped, older marks included."""
    before = find_dropped(table).get(index, NEVER)
    value = {
        "versions": sorted({*versions, *before.versions}),
        "sequence-number": max(
            (snapshot.sequence_number or 0 for snapshot in table.snapshots()), default=0
        ),
        "at-ms": at_ms,
        **({"renamed-to": renamed_to} if renamed_to else {}),
    }
    return {PREFIX + index: json.dumps(value)}


def lifted(table: Table, index: str, version: str) -> dict[str, str]:
    """Return the property by which a version of an index counts as dropped no more, if it does.

    So it is where an index gets a name back that it had before.
    """
    before = find_dropped(table).get(index, NEVER)
    if version not in before.versions:
        return {}
    value = json.loads(table.properties[PREFIX + index])
    value["versions"] = sorted(before.versions - {version})
    return {PREFIX + index: json.dumps(value)}


def _parsed(text: str) -> Dropped:
    try:
        value = object_of(parse(text))
        versions = value.get("versions")
        if not isinstance(versions, list):
            return NEVER
        return Dropped(
            versions=frozenset(map(text_of, versions)),
            sequence_number=long_of(value.get("sequence-number")),
            at_ms=long_of(value.get("at-ms")),
            renamed_to=text_of(value.get("renamed-to", "")),
        )
    except ValueError:
        return NEVER


def names_index(snapshot: Snapshot, index: str, marks: Mapping[str, Dropped]) -> bool:
    """Tell whether a snapshot published a version of an index that was not dropped since."""
    properties = snapshot.summary.additional_properties if snapshot.summary else {}
    if not any(key.startswith(f"ann.{index}.") for key in properties):
        return False
    dropped = marks.get(index, NEVER)
    if (snapshot.sequence_number or 0) > dropped.sequence_number:
        return True
    versions = {properties.get(f"ann.{index}.{key}") for key in ("run-id", "version")}
    return tag_of(snapshot) is not None and not versions & dropped.versions  # it has no own number


def is_dropped(marks: Mapping[str, Dropped], index: str, version: str) -> bool:
    """Tell whether a version of an index was dropped."""
    return version in marks.get(index, NEVER).versions
