"""Tell which commits moved rows to other files, and whether the row ids there are the table's own.

By the specification a `replace` does not change what the table holds: its files have the rows that
were in the files it removed, each with the row id and the number that it had. An `overwrite` may
be a copy-on-write update, which says as much of the rows it left alone. But it may have replaced
files by files of another table, too, as an `append` may import some. Row ids begin at 0 in every
table and numbers at 1, so those of imported rows are easily those of rows that went. Nothing in
metadata tells these apart: only what a `replace` says is believed.

Imported rows may be moved by a `replace`, too. If they were imported since a snapshot, then that
is seen by the files that commits other than `replace` added: new rows have no number stored.
"""

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from puffin_ann.lake.catalog.index_snapshots import tag_of
from puffin_ann.lake.read.data.parquet import open_file
from puffin_ann.lake.read.files.live_files import load_manifest_list, read_entries
from puffin_ann.lake.read.files.manifests import Entry
from puffin_ann.lake.read.identity.row_lineage import may_store_lineage

log = logging.getLogger("puffin_ann")

READERS: Final = 16
"""Footers read at once: most of the time goes into waiting for the store."""


def commits_since(table: Table, base_id: int, snapshot_id: int) -> list[Snapshot] | None:
    """Return the snapshots after one, up to another, the newest first.

    Those that hold an index file are left out.

    Args:
        table: as it was loaded.
        base_id: of the one that they come after.
        snapshot_id: of the last of them.

    Returns:
        None where the second does not descend from the first, or a snapshot between them was
        expired.
    """
    found: list[Snapshot] = []
    at = table.snapshot_by_id(snapshot_id)
    while at is not None and at.snapshot_id != base_id:
        if tag_of(at) is None:
            found.append(at)
        before = at.parent_snapshot_id
        at = None if before is None else table.snapshot_by_id(before)
    return None if at is None else found


def numbers_of_rewrites(commits: Sequence[Snapshot]) -> frozenset[int]:
    """Return the sequence numbers of the commits that moved rows and changed none."""
    return frozenset(commit.sequence_number or 0 for commit in commits if _is_rewrite(commit))


def may_move_imported_rows(
    table: Table, base_id: int, commits: Sequence[Snapshot], live: Collection[str]
) -> bool:
    """Tell whether rows that were moved may have come with row ids of another table.

    Args:
        table: as it was loaded.
        base_id: of the snapshot that `commits` come after: rows of its files are left to the
            caller.
        commits: as `commits_since` returns them.
        live: paths of data files of the last of them: no commit moved their rows.

    Returns:
        True also where that cannot be told: where a snapshot, or a file that was rewritten, cannot
        be read.
    """
    base = table.snapshot_by_id(base_id)
    if base is None:
        return True
    rewrites = numbers_of_rewrites(commits)
    added: set[str] = set()
    for commit in commits:
        # Of the files of the base, none was added since.
        if not _is_rewrite(commit) or commit.parent_snapshot_id in (None, base_id):
            continue
        after = _paths_of_manifests(table, commit.snapshot_id)
        before = None
        if after is not None:
            before = entries_beside(table, commit.parent_snapshot_id or 0, after)
        if before is None:
            return True
        added |= {
            entry.path
            for entry in before.values()
            if entry.file_sequence_number > (base.sequence_number or 0)
            and entry.file_sequence_number not in rewrites
        }

    def may_be_imported(path: str) -> bool:
        try:
            with open_file(table.io, path) as parquet:
                return may_store_lineage(parquet)
        except Exception as error:
            log.debug("row ids: %s, which was rewritten, is not read: %s", path, error)
            return True

    with ThreadPoolExecutor(READERS, thread_name_prefix="lineage") as pool:
        return any(pool.map(may_be_imported, sorted(added.difference(live))))


def entries_beside(
    table: Table, snapshot_id: int, shared: Collection[str]
) -> dict[str, Entry] | None:
    """Return the data files of a snapshot by path, but for those of some manifests.

    Args:
        table: as it was loaded.
        snapshot_id: of the snapshot.
        shared: paths of manifests that are not read.

    Returns:
        None where the snapshot or one of its manifests cannot be read: it may have been expired.
    """
    if table.snapshot_by_id(snapshot_id) is None:
        return None
    try:
        at = load_manifest_list(table, snapshot_id)
        manifests = [
            manifest
            for manifest in at.manifests
            if not manifest.holds_deletes and manifest.path not in shared
        ]
        return {entry.path: entry for entry in read_entries(at.io, manifests)}
    except Exception as error:
        # Whatever is wrong with it does not matter here: row ids only save work.
        log.debug("%s: snapshot %d is not read: %s", ".".join(table.name()), snapshot_id, error)
        return None


def _is_rewrite(commit: Snapshot) -> bool:
    return commit.summary is not None and commit.summary.operation == Operation.REPLACE


def _paths_of_manifests(table: Table, snapshot_id: int) -> frozenset[str] | None:
    try:
        return frozenset(item.path for item in load_manifest_list(table, snapshot_id).manifests)
    except Exception as error:
        log.debug("%s: snapshot %d is not read: %s", ".".join(table.name()), snapshot_id, error)
        return None
