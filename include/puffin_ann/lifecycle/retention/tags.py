"""Decide which versions of an index keep their tags when one more is published.

Each tag makes every commit of the table a little longer, and a refresh each five minutes would
leave 288 within a grace period of a day. So a version goes by their number, too: it loses its tag
and its registration when many newer ones are there, and its file stays for the grace period, since
a search that opened it reads on. Nothing names the file then. Other engines' cleaners take such
files when they are some days old, so that only a file that is younger until the end of its grace
period loses its tag; `removable` finds it by the versions that came after it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import StatisticsFile

from puffin_ann.declaration import RetentionOptions
from puffin_ann.errors import PuffinAnnError
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.metadata.expiry import DAY_MS
from puffin_ann.lake.metadata.own_tags import PREFIX, index_of, own_tags
from puffin_ann.lake.metadata.registered import publication_number
from puffin_ann.lake.store.listing import canonical
from puffin_ann.lifecycle.retention.rules import names_of_snapshots
from puffin_ann.lifecycle.versions.inventory import IndexFile
from puffin_ann.search.version.index_files import directory_in, files_named, open_puffin

log = logging.getLogger("puffin_ann")

TAGGED_VERSIONS = 8
"""Newest versions of an index that keep their tags, or more where its retention says so. Beside
their own files, tags hold those that they name: at most a dozen, see `publish.layers`."""

SPARED_MS = 3 * DAY_MS
"""Age up to which other engines' cleaners leave what no metadata names, by their defaults: Spark's
three days, Trino's and StarRocks' seven."""

NEEDS = "needs"
"""Last part of the key `ann.<index>.needs` of a tagged snapshot's summary: the files that the
version names, each by the last part of the tag that holds it, or by all of it but our prefix where
that was made for an index of another name."""

NOTHING = "none"
"""Value of that key where the version's own file has all of it."""


@dataclass(frozen=True)
class TaggedVersion:
    """A version that a tag of ours holds.

    Attributes:
        slot: the tagged snapshot.
        path: location of its file.
        version: the run that published it first.
        base_snapshot_id: snapshot whose rows it covers; None if that is not known.
        published_ms: when this file was, milliseconds since 1970.
        needs: the tags of the files that it names; None if that is not known.
    """

    slot: int
    path: str
    version: str
    base_snapshot_id: int | None
    published_ms: int
    needs: frozenset[str] | None


def needs_text(table: Table, index: str, paths: Set[str]) -> str:
    """Return the value of `ann.<index>.needs` of a version that names some files.

    Args:
        table: whose tags hold them.
        index: name of the index.
        paths: locations of the files.
    """
    tags = own_tags(table)
    held = [tags[slot] for slot, entry in _tagged_entries(table) if entry.statistics_path in paths]
    own = f"{PREFIX}{index}_"
    parts = (tag.removeprefix(own if index_of(tag) == index else PREFIX) for tag in held)
    return " ".join(sorted(parts)) or NOTHING


def superseded_tags(
    table: Table, index: str, retention: RetentionOptions, needs: Set[str], now_ms: int
) -> frozenset[int]:
    """Return the tagged snapshots that go when a version is published, with their tags.

    Those stay whose version is one of the newest, or covers what a user's tag or a branch points
    to; whose file one of these names, or the new version does, or any of an index that had this
    name before; and whose file would be too old for other engines' cleaners before its grace
    period is over.

    Args:
        table: as it was loaded.
        index: name of the index.
        retention: of the index.
        needs: locations of the files that the new version names.
        now_ms: milliseconds since 1970.
    """
    tagged = tagged_versions(table, index)
    limit = _limit(retention) - 1  # beside the one that is published
    ranks = {version: rank for rank, version in enumerate(dict.fromkeys(v.version for v in tagged))}
    kept = [each for each in tagged if ranks[each.version] < limit]
    kept += _with_names(tagged, names_of_snapshots(table))
    known = _needed(table.io, index, kept)
    if known is None:
        return frozenset()
    tags = own_tags(table)
    needed = known | {canonical(path) for path in needs} | _needed_by_others(table, index)
    staying = {each.slot for each in kept}
    return frozenset(
        each.slot
        for each in tagged
        if each.slot not in staying
        and not {canonical(each.path), tags[each.slot]} & needed
        and now_ms + retention.grace_ms <= each.published_ms + SPARED_MS
    )


def find_untagged(
    files: Sequence[IndexFile], retention: Mapping[str, RetentionOptions]
) -> list[IndexFile]:
    """Return the files whose tags went by `superseded_tags`, as far as no metadata tells of them.

    They are known by the versions published after them, so many as superseded their tags; from the
    time of these `apply_retention` knows since when they are not needed. A file that a failed run
    left before these looks the same: it stays a little longer for that.

    Args:
        files: of a table, the newest first.
        retention: by index.
    """
    newer: dict[str, set[str]] = {}
    found = []
    for file in files:
        if not file.is_usable:
            continue
        if file.is_published:
            for held in file.holds:
                newer.setdefault(held.index, set()).add(held.version)
        elif all(
            held.index in retention
            and len(newer.get(held.index, set()) - {held.version}) >= _limit(retention[held.index])
            for held in file.holds
        ):
            found.append(file)
    return found


def _limit(retention: RetentionOptions) -> int:
    return max(TAGGED_VERSIONS, retention.versions)


def tagged_versions(table: Table, index: str) -> list[TaggedVersion]:
    """Return the versions of an index that tags of ours hold, the newest first."""
    tags = own_tags(table)
    found = []
    for slot, entry in _tagged_entries(table):
        snapshot = table.snapshot_by_id(slot)
        if snapshot is not None and index_of(tags[slot]) == index:
            found.append(_version(snapshot, entry.statistics_path, index))
    return sorted(
        found,
        key=lambda each: (publication_number(each.path), each.published_ms, each.path),
        reverse=True,
    )


def _tagged_entries(table: Table) -> Iterable[tuple[int, StatisticsFile]]:
    tags = own_tags(table)
    return [(slot, entry) for slot, entry in slots(table).items() if slot in tags]


def _version(snapshot: Snapshot, path: str, index: str) -> TaggedVersion:
    said = snapshot.summary.additional_properties if snapshot.summary else {}
    base = said.get(f"ann.{index}.base-snapshot-id", "")
    run = said.get(f"ann.{index}.version") or said.get(f"ann.{index}.run-id") or path
    needs = said.get(f"ann.{index}.{NEEDS}")
    return TaggedVersion(
        slot=snapshot.snapshot_id,
        path=path,
        version=run,
        base_snapshot_id=int(base) if base.lstrip("-").isdecimal() else None,
        published_ms=snapshot.timestamp_ms,
        needs=None if needs is None else _tags(needs, index),
    )


def _tags(needs: str, index: str) -> frozenset[str]:
    """Return the tags that a summary says: of another index it has the name, too."""
    parts = (part for part in needs.split() if part != NOTHING)
    return frozenset(f"{PREFIX}{part if '_' in part else f'{index}_{part}'}" for part in parts)


def _needed_by_others(table: Table, index: str) -> set[str]:
    """Return the tags that versions of other indexes need.

    Those are of indexes that were renamed, and so of a release that says what they need.
    """
    others = {index_of(tag) for tag in own_tags(table).values()} - {index}
    return {
        tag
        for other in others
        for version in tagged_versions(table, other)
        for tag in version.needs or ()
    }


def named_since(before: Table, after: Table) -> frozenset[str] | None:
    """Return the files that versions name which were published since a table was loaded.

    Args:
        before: the table as it was loaded then.
        after: the same, loaded now.

    Returns:
        Their canonical locations; None if it is not known what some of those versions name.
    """
    then, now = own_tags(before), own_tags(after)
    held = {then[slot]: canonical(entry.statistics_path) for slot, entry in _tagged_entries(before)}
    known = set(then.values())
    named: set[str] = set()
    for slot, entry in _tagged_entries(after):
        snapshot, index = after.snapshot_by_id(slot), index_of(now[slot])
        if now[slot] in known or snapshot is None:
            continue
        needed = _needed(after.io, index, [_version(snapshot, entry.statistics_path, index)])
        if needed is None:
            return None
        named |= {held.get(each, each) for each in needed}
    return frozenset(named)


def _with_names(
    tagged: Sequence[TaggedVersion], names: Mapping[int, object]
) -> list[TaggedVersion]:
    """Return the newest versions to cover what users' tags and branches point to."""
    newest: dict[int | None, TaggedVersion] = {}
    for each in tagged:
        newest.setdefault(each.base_snapshot_id, each)
    return [
        each
        for each in tagged
        if each.slot in names
        or (each.base_snapshot_id in names and newest[each.base_snapshot_id] is each)
    ]


def _needed(io: FileIO, index: str, versions: Iterable[TaggedVersion]) -> set[str] | None:
    """Return what versions need: tags, or canonical locations; None if that is not known.

    Versions of earlier releases do not say it in the table's metadata, but in their files.
    """
    needed: set[str] = set()
    for version in versions:
        if version.needs is not None:
            needed |= version.needs
            continue
        try:
            with open_puffin(io, version.path) as reader:
                named = files_named(version.path, directory_in(reader, index))
        except (PuffinAnnError, FileNotFoundError) as error:
            log.warning(
                "no tag of index %s goes while it is not known what a version of it needs: %s",
                index,
                error,
            )
            return None
        needed |= {canonical(path) for path in named}
    return needed
