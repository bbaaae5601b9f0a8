"""Entries of a snapshot's data files with their statistics, read once: a snapshot never changes."""

from collections.abc import Sequence
from itertools import chain

from pyiceberg.table import Table
from pyiceberg.utils.concurrent import ExecutorFactory

from puffin_ann.lake.catalog.scope import scope_of
from puffin_ann.lake.read.data.column_chunks import Kept
from puffin_ann.lake.read.files.live_files import load_manifest_list
from puffin_ann.lake.read.files.manifests import Entry, Manifest, read_manifest
from puffin_ann.settings import MIB

ENTRIES = Kept(lambda: 64 * MIB)
"""What a process keeps, by table and snapshot, those used longest ago leaving first. Manifests of a
snapshot that takes more are read each time."""

_ENTRY_BYTES, _TOLD_BYTES = 1000, 120
"""Of an entry, and of each thing that it tells of a column, in memory; somewhat much. The bytes of
bounds come on top: some writers cut them short, others do not."""


def data_entries(table: Table, snapshot_id: int) -> Sequence[Entry]:
    """Return the entries of a snapshot's data files, in the order of its manifests.

    Raises:
        SnapshotNotFoundError: the table has no such snapshot.
        DataFileError, EnvironmentProblemError: see `manifests.read_manifest`.
    """
    key = scope_of(table), snapshot_id
    kept: Sequence[Entry] | None = ENTRIES.get(key)
    if kept is not None:
        return kept
    at = load_manifest_list(table, snapshot_id)

    def read(manifest: Manifest) -> list[Entry]:
        return list(read_manifest(at.io, manifest, with_statistics=True))

    data = [manifest for manifest in at.manifests if not manifest.holds_deletes]
    found = tuple(chain.from_iterable(ExecutorFactory.get_or_create().map(read, data)))
    ENTRIES.put(key, found, sum(map(_size, found)))
    return found


def _size(entry: Entry) -> int:
    """Return the bytes of memory that an entry takes, about."""
    told = entry.statistics
    if told is None:
        return _ENTRY_BYTES
    parts = (told.values, told.nulls, told.nans, told.lower, told.upper)
    told_bytes = _TOLD_BYTES * sum(len(part) for part in parts if part)
    bounds = (bound for part in (told.lower, told.upper) if part for bound in part.values())
    return _ENTRY_BYTES + told_bytes + sum(map(len, bounds))
