"""Open an index at a snapshot: find its versions, and take the one that serves it best."""

from collections.abc import Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import get_args

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from puffin_ann.errors import QueryError, TooFewRowsError
from puffin_ann.lake.catalog.tables import (
    is_branch,
    load_table,
    name_of,
    schema_of_snapshot,
    snapshot_of_ref,
)
from puffin_ann.lake.catalog.tables import snapshot as find_snapshot
from puffin_ann.search.explain.explanation import Opening
from puffin_ann.search.failover import cheapest, may_answer
from puffin_ann.search.index import Index
from puffin_ann.search.questions.checks import checked_stale_policy
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.indexed_column import other_column, require_indexed_column
from puffin_ann.search.version.snapshot_view import LiveState, live_state, view_of
from puffin_ann.search.version.versions import require_found
from puffin_ann.settings import CacheMode, StalePolicy, settings


def open_index(
    table: Table | str,
    name: str,
    snapshot_id: int | None = None,
    *,
    ref: str | None = None,
    cache: CacheMode | None = None,
    stale_policy: StalePolicy = "scan",
) -> Index:
    """Open an index of a table, for the rows live in one snapshot.

    Any retained version of the same column with the newest one's metric answers for any snapshot,
    unless its schema has that column no more, or another one by its name. The newest is taken
    where the snapshot went on from what it covers; else, as after a rollback or for a snapshot of
    the past, the one that leaves the fewest rows to mask and scan, the newest of equals. If that
    turns out to be damaged, the next best answers, and every answer tells the damage.

    Args:
        table: a PyIceberg table, or `catalog.namespace.table` of PyIceberg's configuration.
        name: the index's name.
        snapshot_id: a retained snapshot; None is the current one.
        ref: a branch or tag, instead of a snapshot id.
        cache: when a shard is brought to local disk: `full`, before it answers; `lazy`, in the
            background, once a tenth of its bytes was read by ranges to answer from the rows of its
            nearest cells; `none`, only where ranges cannot answer. Default: the setting
            `cache_mode`.
        stale_policy: of searches that compare rows outside the index: `scan`, they do; `warn`, they
            do and log it as a warning; `fail`, they raise instead. Searches may say otherwise.

    Example:
        >>> index = open_index("demo.glove.words", "glove_words")  # doctest: +SKIP
        >>> index.search(vector, k=10, columns=["word"])  # doctest: +SKIP

    Raises:
        TableNotFoundError, CatalogUnavailableError, SnapshotNotFoundError, IndexNotFoundError.
        IndexedColumnError: the snapshot's schema has not the column that was indexed, or has
            another one by its name.
        QueryError: both a snapshot id and a branch or tag are given, or `cache` or `stale_policy`
            is none of those.
    """
    if ref is not None and snapshot_id is not None:
        raise QueryError("give either snapshot_id or ref, not both")
    if cache is not None and cache not in get_args(CacheMode):
        allowed = ", ".join(map(repr, get_args(CacheMode)))
        raise QueryError(f"cache is {cache!r}; allowed: {allowed}")
    checked_stale_policy(stale_policy)
    began = perf_counter()
    loaded = load_table(table)
    if ref is not None:
        snapshot = snapshot_of_ref(loaded, ref)
    else:
        snapshot = require_snapshot(loaded, snapshot_id)
    past = {before.snapshot_id for before in ancestors_of(snapshot, loaded.metadata)}
    with ThreadPoolExecutor(1, "read the manifest list") as threads:  # a store answers both at once
        by_branch = is_branch(loaded, ref)
        manifests = threads.submit(live_state, loaded, snapshot.snapshot_id, by_branch=by_branch)
        schema = schema_of_snapshot(loaded, snapshot.snapshot_id, by_branch=by_branch)

        def is_enough(version: IndexVersion) -> bool:
            is_of_the_past = version.coverage.base_snapshot_id in past
            return is_of_the_past and other_column(version, schema) is None

        found = require_found(loaded, name, is_enough)
        live = manifests.result()
    newest = found.versions[0]
    like_it = [version for version in found.versions if may_answer(version, newest)]
    versions = require_indexed_column(loaded, like_it, schema, live)
    version, view = cheapest(loaded, versions, live)
    why = _why(version, versions, past)
    if versions[0] is not newest:
        why = f"newer versions are of a column that it does not have by that name; of others: {why}"
    return Index(
        loaded,
        version,
        view,
        damage=found.problems,
        falls_back=True,
        cache_mode=cache or settings().cache_mode,
        stale_policy=stale_policy,
        opening=Opening(why, perf_counter() - began),
    )


def _why(version: IndexVersion, versions: Sequence[IndexVersion], past: Set[int]) -> str:
    """Return why a version of some, the newest first, was taken for a snapshot of a past."""
    if version is not versions[0]:
        return f"of {len(versions)} versions it leaves the fewest rows to mask and scan"
    if version.coverage.base_snapshot_id in past:
        return "the newest: the snapshot went on from what it covers"
    if len(versions) == 1:
        return "the only one that can be read; the snapshot did not go on from what it covers"
    return f"the newest: none of {len(versions) - 1} others leaves fewer rows to mask and scan"


def require_snapshot(table: Table, snapshot_id: int | None) -> Snapshot:
    """Return the snapshot asked for, or the current one.

    Raises:
        SnapshotNotFoundError: there is no such snapshot.
        TooFewRowsError: the table has no snapshot at all.
    """
    snapshot = find_snapshot(table, snapshot_id)
    if snapshot is None:
        raise TooFewRowsError(f"table {name_of(table)} is empty: it has no snapshot yet")
    return snapshot


def open_version(table: Table, version: IndexVersion, live: LiveState) -> Index:
    """Open one given version, published or staged, as the recall gate does."""
    return Index(table, version, view_of(table, version, live))
