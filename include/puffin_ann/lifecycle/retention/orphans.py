"""List what no index needs any more: superseded versions, and what failed runs left behind."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from puffin_ann.declaration import IndexDeclaration, RetentionOptions
from puffin_ann.errors import BadInputError, FormatError
from puffin_ann.lake.commit.index_snapshot import is_own_manifest_list
from puffin_ann.lake.metadata.log import manifest_lists_of
from puffin_ann.lake.store.listing import StoredObject, canonical, listed, unfinished_uploads
from puffin_ann.lake.store.locations import metadata_folder
from puffin_ann.lake.store.staging import is_partial
from puffin_ann.lifecycle.documents.run import EVALUATED
from puffin_ann.lifecycle.published.inventory import Inventory
from puffin_ann.lifecycle.retention.rules import (
    Verdict,
    apply_retention,
    names_of_snapshots,
    policies,
)
from puffin_ann.lifecycle.runtime.heartbeat import ALIVE_MS
from puffin_ann.lifecycle.runtime.object_names import names_with_folders, object_name, registered
from puffin_ann.lifecycle.runtime.workspace import staging_folder

_log = logging.getLogger("puffin_ann")

Kind = Literal[
    "superseded version", "unpublished file", "staging", "record", "manifest list", "upload"
]


class Orphan(BaseModel):
    """Something that goes, or will go when its grace is over.

    Attributes:
        location: the object, the folder of a run's staging, or the object an upload was to make.
        bytes: what it takes up, as far as known.
        why: the reason, with the version that took its place or the like.
        idle_seconds: how long it has not been needed, or not been written to.
        grace_seconds: how long it has to be so before it goes.
        slots: snapshots from which it is deregistered first.
    """

    model_config = ConfigDict(frozen=True)

    kind: Kind
    location: str
    bytes: int
    why: str
    idle_seconds: int
    grace_seconds: int
    slots: tuple[int, ...] = ()

    @property
    def is_due(self) -> bool:
        """Tell whether its grace is over."""
        return self.idle_seconds >= self.grace_seconds


def find_orphans(
    inventory: Inventory, declarations: Sequence[IndexDeclaration] = (), *, grace: str | None = None
) -> list[Orphan]:
    """List what is not needed any more, due or not; reads the store, changes nothing."""
    published = inventory.published
    retention = policies(declarations, published)
    usual = RetentionOptions()
    if grace is not None:
        usual = _with_grace(usual, grace)
        retention = {index: _with_grace(one, grace) for index, one in retention.items()}
    verdicts = apply_retention(published, retention, names_of_snapshots(inventory.table))
    longest = max((one.grace_ms for one in retention.values()), default=usual.grace_ms)
    longest = max(longest, ALIVE_MS)  # what is not published may be of a run that goes on
    return [
        *_superseded(inventory, verdicts),
        *_dropped(inventory, declarations, grace),
        *_unpublished(inventory, longest),
        *_staging(inventory, retention, longest),
        *_records(inventory, retention, longest),
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


def _superseded(inventory: Inventory, verdicts: Iterable[Verdict]) -> Iterable[Orphan]:
    for one in verdicts:
        if not one.is_kept:
            yield Orphan(
                kind="superseded version",
                location=one.file.path,
                bytes=one.file.bytes or 0,
                why="; ".join(one.superseded),
                idle_seconds=_seconds(inventory.now_ms - one.since_ms),
                grace_seconds=_seconds(one.grace_ms),
                slots=tuple(sorted(one.file.entries)),
            )


def _dropped(
    inventory: Inventory, declarations: Sequence[IndexDeclaration], grace: str | None
) -> Iterable[Orphan]:
    """List files that hold nothing but versions that were dropped."""
    for file in inventory.files:
        if file.holds or not file.dropped:
            continue
        shells = [replace(file, holds=file.dropped)]
        kept = policies(declarations, shells)
        longest = max(kept.values(), key=lambda one: one.grace_ms)
        since = max(one.dropped_ms for one in file.dropped)
        names = ", ".join(sorted({repr(one.index) for one in file.dropped}))
        yield Orphan(
            kind="superseded version",
            location=file.path,
            bytes=file.bytes or 0,
            why=f"index {names} was dropped",
            idle_seconds=_seconds(inventory.now_ms - since),
            grace_seconds=_seconds((_with_grace(longest, grace) if grace else longest).grace_ms),
            slots=tuple(sorted(file.entries)),
        )


def _unpublished(inventory: Inventory, grace_ms: int) -> Iterable[Orphan]:
    """List files of runs that failed, were killed, or whose commit was not answered.

    A file that some snapshot or earlier metadata names is none of them, readable or not.
    """
    for file in inventory.files:
        left = file.holds or not file.dropped
        if left and not file.is_published and file.bytes is not None:
            yield Orphan(
                kind="unpublished file",
                location=file.path,
                bytes=file.bytes,
                why="no metadata of the table names it: its run failed, or its commit never landed",
                idle_seconds=_seconds(inventory.now_ms - file.modified_ms),
                grace_seconds=_seconds(grace_ms),
            )


def _staging(
    inventory: Inventory, retention: Mapping[str, RetentionOptions], longest: int
) -> Iterable[Orphan]:
    root = staging_folder(inventory.table)
    runs: dict[tuple[str, str], list[StoredObject]] = defaultdict(list)
    for one in listed(inventory.table.io, root, recursive=True):
        index, _, rest = one.uri[len(root) + 1 :].partition("/")
        run, slash, _ = rest.partition("/")
        if slash:
            runs[index, run].append(one)
    needed = names_with_folders(registered(inventory.table))
    for (index, run), objects in sorted(runs.items()):
        folder = f"{root}/{index}/{run}"
        if object_name(folder) in needed:
            continue
        grace = retention[index].grace_ms if index in retention else longest
        yield Orphan(
            kind="staging",
            location=folder,
            bytes=sum(one.bytes for one in objects),
            why=f"run {run} of index {index!r} staged {len(objects)} objects and wrote no more",
            idle_seconds=_seconds(inventory.now_ms - max(one.modified_ms for one in objects)),
            grace_seconds=_seconds(max(grace, ALIVE_MS)),
        )


def _records(
    inventory: Inventory, retention: Mapping[str, RetentionOptions], grace_ms: int
) -> Iterable[Orphan]:
    """List leases and evaluations of indexes that are not published, or not any more.

    Those of published indexes stay: a lease's numbers grow, and evaluations are its history. What
    was to become one, and was not since its writer was killed, goes in any case.
    """
    root = staging_folder(inventory.table)
    for one in listed(inventory.table.io, root, recursive=True):
        *index, name = one.uri[len(root) + 1 :].split("/")
        is_needed = index[0] in retention if index else bool(retention)
        is_record = name.startswith(("_lease-", EVALUATED)) and not is_needed
        if (is_record or is_partial(name)) and len(index) < 2:
            why = f"index {index[0]!r} is not published" if index else "no index is published"
            yield Orphan(
                kind="record",
                location=one.uri,
                bytes=one.bytes,
                why="whoever wrote it was killed" if is_partial(name) else why,
                idle_seconds=_seconds(inventory.now_ms - one.modified_ms),
                grace_seconds=_seconds(grace_ms),
            )


def _manifest_lists(inventory: Inventory, grace_ms: int) -> Iterable[Orphan]:
    """List manifest lists of index snapshots that never came to be: of commits not answered."""
    found = [
        one
        for one in listed(inventory.table.io, metadata_folder(inventory.table))
        if is_own_manifest_list(one.uri.rpartition("/")[2])
    ]
    needed = {canonical(one.manifest_list) for one in inventory.table.snapshots()}
    unknown = [one for one in found if canonical(one.uri) not in needed]
    if unknown:  # snapshots that expired are the catalog's and Iceberg's to clear
        try:
            needed |= {canonical(path) for path in manifest_lists_of(inventory.table)}
        except FormatError as error:
            _log.warning("manifest lists that may be needed stay: %s", error)
            return
    for one in unknown:
        if canonical(one.uri) not in needed:
            yield Orphan(
                kind="manifest list",
                location=one.uri,
                bytes=one.bytes,
                why="no metadata of the table names it: the commit of its snapshot never landed",
                idle_seconds=_seconds(inventory.now_ms - one.modified_ms),
                grace_seconds=_seconds(grace_ms),
            )


def _uploads(inventory: Inventory, grace_ms: int) -> Iterable[Orphan]:
    io, prefix = inventory.table.io, f"{metadata_folder(inventory.table)}/ann-"
    for uri, upload in unfinished_uploads(io, prefix):
        begun_ms = int(upload.begun.timestamp() * 1000)
        yield Orphan(
            kind="upload",
            location=uri,
            bytes=0,
            why=f"upload {upload.id} was begun and never completed",
            idle_seconds=_seconds(inventory.now_ms - begun_ms),
            grace_seconds=_seconds(grace_ms),
        )


def _seconds(milliseconds: int) -> int:
    return milliseconds // 1000
