"""Which snapshots `expire_snapshots` would leave, by the rules of Iceberg's `RemoveSnapshots`."""

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

DAY_MS = 24 * 3600 * 1000
MAX_AGE = "history.expire.max-snapshot-age-ms"
MIN_KEPT = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE = "history.expire.max-ref-age-ms"
DEFAULT_MAX_AGE_MS = 5 * DAY_MS
DEFAULT_MIN_KEPT = 1
FOREVER = 2**63 - 1


@dataclass(frozen=True)
class Horizon:
    """What an expiry removes that is run at `at_ms`.

    Attributes:
        at_ms: when it is run, milliseconds since 1970.
        older_than_ms: its argument `older_than`; None: by the table's properties.
        retain_last: its argument `retain_last`; None: by the table's properties.
    """

    at_ms: int
    older_than_ms: int | None = None
    retain_last: int | None = None


def surviving(table: Table, horizon: Horizon) -> frozenset[int]:
    """Return the ids of the snapshots that are left after an expiry."""
    metadata = table.metadata
    older_than = horizon.older_than_ms
    if older_than is None:
        older_than = horizon.at_ms - _number(table, MAX_AGE, DEFAULT_MAX_AGE_MS)
    least = horizon.retain_last
    if least is None:
        least = _number(table, MIN_KEPT, DEFAULT_MIN_KEPT)
    refs = {
        name: ref
        for name, ref in metadata.refs.items()
        if name == MAIN_BRANCH or _ref_is_kept(table, ref, horizon.at_ms)
    }
    kept = {ref.snapshot_id for ref in refs.values()}
    named: set[int] = set(kept)
    for ref in refs.values():
        if ref.snapshot_ref_type != SnapshotRefType.BRANCH:
            continue
        limit = older_than
        if ref.max_snapshot_age_ms is not None:
            limit = horizon.at_ms - ref.max_snapshot_age_ms
        line = list(_ancestors(metadata, ref.snapshot_id))
        named |= {snapshot.snapshot_id for snapshot in line}
        kept |= _kept_of(line, limit, ref.min_snapshots_to_keep or least)
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id not in named and snapshot.timestamp_ms >= older_than:
            kept.add(snapshot.snapshot_id)
    return frozenset(kept & {snapshot.snapshot_id for snapshot in metadata.snapshots})


def _kept_of(line: list[Snapshot], limit: int, least: int) -> set[int]:
    kept: set[int] = set()
    for snapshot in line:
        if len(kept) >= least and snapshot.timestamp_ms < limit:
            break
        kept.add(snapshot.snapshot_id)
    return kept


def _ref_is_kept(table: Table, ref: SnapshotRef, at_ms: int) -> bool:
    snapshot = table.metadata.snapshot_by_id(ref.snapshot_id)
    longest = ref.max_ref_age_ms or _number(table, MAX_REF_AGE, FOREVER)
    return snapshot is not None and at_ms - snapshot.timestamp_ms <= longest


def _ancestors(metadata: TableMetadata, snapshot_id: int | None) -> Iterator[Snapshot]:
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    seen: set[int] = set()
    while snapshot_id in by_id and snapshot_id not in seen:
        seen.add(snapshot_id)
        snapshot = by_id[snapshot_id]
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id


def _number(table: Table, key: str, default: int) -> int:
    try:
        return int(table.properties.get(key, default))
    except ValueError:
        return default
