"""List what no index needs any more: superseded versions, and what failed runs left behind."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from puffin_ann.declaration import IndexDeclaration, RetentionOptions
from puffin_ann.errors import BadInputError, FormatError
from puffin_ann.lake.commit.tagged_snapshot import is_own_manifest_list
from puffin_ann.lake.metadata.log import manifest_lists_of
from puffin_ann.lake.store.listing import StoredObject, canonical, list_objects, unfinished_uploads
from puffin_ann.lake.store.locations import (
    FORMER_STAGING_FOLDER,
    metadata_folder,
    staging_folders,
)
from puffin_ann.lake.store.staging import is_partial
from puffin_ann.lifecycle.documents.run import EVALUATED
from puffin_ann.lifecycle.retention.rules import (
    Verdict,
    apply_retention,
    names_of_snapshots,
    policies,
)
from puffin_ann.lifecycle.retention.tags import find_untagged
from puffin_ann.lifecycle.runtime.heartbeat import ALIVE_MS
from puffin_ann.lifecycle.runtime.object_names import (
    names_with_folders,
    needed_locations,
    object_name,
)
from puffin_ann.lifecycle.versions.inventory import Holding, IndexFile, Inventory, needs_of
from puffin_ann.wording import counted

_log = logging.getLogger("puffin_ann")

_LEASE = "_lease-"

Kind = Literal[
    "superseded version", "unpublished file", "staging", "record", "manifest list", "upload"
]


class Removable(BaseModel):
    """Something that goes, or will go when its grace is over.

    Attributes:
        location: the object, the folder of a run's staging, or the object an upload was to make.
        bytes: what it takes up, as far as known.
        why: the reason, such as the version that took its place.
        idle_seconds: how long it has not been needed, or not been written to.
        grace_seconds: how long it has to be so before it goes.
        slots: snapshots from which it is deregistered first.
        tags: of ours, that hold it and go with it.
        upload_id: of an upload, the store's name of it.
    """

    model_config = ConfigDict(frozen=True)

    kind: Kind
    location: str
    bytes: int
    why: str
    idle_seconds: int
    grace_seconds: int
    slots: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    upload_id: str = Field(default="", exclude=True)

    @property
    def reason(self) -> str:
        """The reason, and the tags that go with it."""
        return self.why + (f"; with tag {', '.join(self.tags)}" if self.tags else "")

    @property
    def is_due(self) -> bool:
        """Tell whether its grace is over."""
        return self.idle_seconds >= self.grace_seconds


def find_removable(
    inventory: Inventory, declarations: Sequence[IndexDeclaration] = (), *, grace: str | None = None
) -> list[Removable]:
    """List what is not needed any more, due or not; reads the store, changes nothing."""
    published = inventory.published
    retention = policies(declarations, published)
    without_tag = find_untagged(inventory.files, retention)
    usual = RetentionOptions()
    if grace is not None:
        usual = _with_grace(usual, grace)
        retention = {index: _with_grace(policy, grace) for index, policy in retention.items()}
    once = [file for file in inventory.files if file in published or file in without_tag]
    needed = needs_of(once)
    names = names_of_snapshots(inventory.table)
    verdicts = apply_retention(inventory.with_needed(once), retention, names)
    longest = max((policy.grace_ms for policy in retention.values()), default=usual.grace_ms)
    longest = max(longest, ALIVE_MS)  # what is not published may be of a run that goes on
    unnamed: list[Removable] = []
    for root in staging_folders(inventory.table):
        stored = list_objects(inventory.table.io, root, recursive=True)
        unnamed += _staging(inventory, root, stored, retention, longest)
        unnamed += _records(inventory, root, stored, retention, longest)
    return [
        *_superseded(inventory, verdicts),
        *_dropped(inventory, needed, declarations, grace),
        *_unpublished(inventory, needed, without_tag, longest),
        *unnamed,
        *_manifest_lists(inventory, longest),
        *_uploads(inventory, longest),
    ]


def _with_grace(retention: RetentionOptions, grace: str) -> RetentionOptions:
    try:
        return RetentionOptions(versions=retention.versions, grace=grace)
    except ValidationError:
        raise BadInputError(
            f"{grace!r} is no grace: write a number and s, m, h or d, such as 12h"
        ) from None


def _superseded(inventory: Inventory, verdicts: Iterable[Verdict]) -> Iterable[Removable]:
    for verdict in verdicts:
        if not verdict.is_kept:
            yield Removable(
                kind="superseded version",
                location=verdict.file.path,
                bytes=verdict.file.bytes or 0,
                why="; ".join(verdict.superseded),
                idle_seconds=_seconds(inventory.now_ms - verdict.since_ms),
                grace_seconds=_seconds(verdict.grace_ms),
                slots=tuple(sorted(verdict.file.entries)),
                tags=tuple(inventory.tags_of(verdict.file)),
            )


def _dropped(
    inventory: Inventory,
    needed: Set[str],
    declarations: Sequence[IndexDeclaration],
    grace: str | None,
) -> Iterable[Removable]:
    """List files that hold nothing but versions that were dropped, and that no other needs."""
    for file in inventory.files:
        if file.holds or not file.dropped or canonical(file.path) in needed:
            continue
        dropped = (*file.dropped, *_dropped_with(inventory, file))
        shells = [replace(file, holds=dropped)]
        kept = policies(declarations, shells)
        longest = max(kept.values(), key=lambda policy: policy.grace_ms)
        since = max(name.dropped_ms for name in dropped)
        names = ", ".join(sorted({repr(name.index) for name in dropped}))
        yield Removable(
            kind="superseded version",
            location=file.path,
            bytes=file.bytes or 0,
            why=f"index {names} was dropped",
            idle_seconds=_seconds(inventory.now_ms - since),
            grace_seconds=_seconds((_with_grace(longest, grace) if grace else longest).grace_ms),
            slots=tuple(sorted(file.entries)),
            tags=tuple(inventory.tags_of(file)),
        )


def _dropped_with(inventory: Inventory, file: IndexFile) -> Iterable[Holding]:
    """Yield versions in other files that named a file until they were dropped, too."""
    key = canonical(file.path)
    return (held for other in inventory.files if key in other.needs for held in other.dropped)


def find_needed(
    inventory: Inventory, declarations: Sequence[IndexDeclaration] = ()
) -> list[tuple[IndexFile, str]]:
    """List the files that stay only since versions in other files need them, each with these."""
    published = inventory.published
    verdicts = apply_retention(
        inventory.with_needed(published),
        policies(declarations, published),
        names_of_snapshots(inventory.table),
    )
    return [
        (verdict.file, "; ".join(verdict.reasons)) for verdict in verdicts if verdict.is_for_others
    ]


def _unpublished(
    inventory: Inventory, needed: Set[str], without_tag: Collection[IndexFile], grace_ms: int
) -> Iterable[Removable]:
    """List files of runs that failed, were killed, or whose commit was not answered.

    A file that some snapshot or earlier metadata names, or a version that is published, is none of
    them, readable or not, nor what lost its tag when newer versions were published.
    """
    for file in inventory.files:
        left = (file.holds or not file.dropped) and file not in without_tag
        left = left and canonical(file.path) not in needed
        if left and not file.is_published and file.bytes is not None:
            yield Removable(
                kind="unpublished file",
                location=file.path,
                bytes=file.bytes,
                why="no metadata of the table names it: its run failed, or its commit never landed",
                idle_seconds=_seconds(inventory.now_ms - file.modified_ms),
                grace_seconds=_seconds(grace_ms),
            )


def _staging(
    inventory: Inventory,
    root: str,
    stored: Iterable[StoredObject],
    retention: Mapping[str, RetentionOptions],
    longest: int,
) -> Iterable[Removable]:
    runs: dict[tuple[str, str], list[StoredObject]] = defaultdict(list)
    for staged in stored:
        index, _, rest = staged.uri[len(root) + 1 :].partition("/")
        run, slash, _ = rest.partition("/")
        if slash:
            runs[index, run].append(staged)
    needed = names_with_folders(needed_locations(inventory.table))
    for (index, run), objects in sorted(runs.items()):
        folder = f"{root}/{index}/{run}"
        if object_name(folder) in needed:
            continue
        grace = retention[index].grace_ms if index in retention else longest
        yield Removable(
            kind="staging",
            location=folder,
            bytes=sum(stored.bytes for stored in objects),
            why=f"run {run} of index {index!r} staged {counted(len(objects), 'object')} "
            "and wrote no more",
            idle_seconds=_seconds(inventory.now_ms - max(stored.modified_ms for stored in objects)),
            grace_seconds=_seconds(max(grace, ALIVE_MS)),
        )


def _records(
    inventory: Inventory,
    root: str,
    stored: Iterable[StoredObject],
    retention: Mapping[str, RetentionOptions],
    grace_ms: int,
) -> Iterable[Removable]:
    """List leases and evaluations of indexes that are not published, or not any more.

    Those of published indexes stay: a lease's numbers grow, and evaluations are its history. What
    was to become one, and was not since its writer was killed, goes in any case; so do leases in
    the folder that no run takes one in any more.
    """
    for record in stored:
        why = _why_not_needed(root, record.uri, retention)
        if why:
            yield Removable(
                kind="record",
                location=record.uri,
                bytes=record.bytes,
                why=why,
                idle_seconds=_seconds(inventory.now_ms - record.modified_ms),
                grace_seconds=_seconds(grace_ms),
            )


def _why_not_needed(root: str, uri: str, retention: Mapping[str, RetentionOptions]) -> str:
    """Say why a lease or an evaluation may go; empty if it stays, or is neither."""
    *index, name = uri[len(root) + 1 :].split("/")
    if len(index) > 1:
        return ""  # of a run
    if is_partial(name):
        return "whoever wrote it was killed"
    if name.startswith(_LEASE) and root.endswith(f"/{FORMER_STAGING_FOLDER}"):
        return "leases are not kept in this folder any more"
    is_needed = index[0] in retention if index else bool(retention)
    if is_needed or not name.startswith((_LEASE, EVALUATED)):
        return ""
    return f"index {index[0]!r} is not published" if index else "no index is published"


def _manifest_lists(inventory: Inventory, grace_ms: int) -> Iterable[Removable]:
    """List manifest lists of snapshots of ours that never came to be, or were removed since."""
    found = [
        stored
        for stored in list_objects(inventory.table.io, metadata_folder(inventory.table))
        if is_own_manifest_list(stored.uri.rpartition("/")[2])
    ]
    needed = {canonical(snapshot.manifest_list) for snapshot in inventory.table.snapshots()}
    unknown = [stored for stored in found if canonical(stored.uri) not in needed]
    if unknown:  # snapshots that expired are the catalog's and Iceberg's to clear
        try:
            needed |= {canonical(path) for path in manifest_lists_of(inventory.table)}
        except FormatError as error:
            _log.warning("manifest lists that may be needed stay: %s", error)
            return
    for file in unknown:
        if canonical(file.uri) not in needed:
            yield Removable(
                kind="manifest list",
                location=file.uri,
                bytes=file.bytes,
                why="no metadata of the table names it: the commit of its snapshot never landed, "
                "or the snapshot went with its tag",
                idle_seconds=_seconds(inventory.now_ms - file.modified_ms),
                grace_seconds=_seconds(grace_ms),
            )


def _uploads(inventory: Inventory, grace_ms: int) -> Iterable[Removable]:
    io = inventory.table.io
    prefixes = [f"{metadata_folder(inventory.table)}/ann-"]  # of FORMER_STAGING_FOLDER, too
    prefixes += [f"{root}/" for root in staging_folders(inventory.table) if prefixes[0] not in root]
    for uri, upload in chain.from_iterable(unfinished_uploads(io, prefix) for prefix in prefixes):
        begun_ms = int(upload.begun.timestamp() * 1000)
        yield Removable(
            kind="upload",
            location=uri,
            bytes=0,
            why=f"upload {upload.id} was started and never completed",
            idle_seconds=_seconds(inventory.now_ms - begun_ms),
            grace_seconds=_seconds(grace_ms),
            upload_id=upload.id,
        )


def _seconds(milliseconds: int) -> int:
    return milliseconds // 1000
