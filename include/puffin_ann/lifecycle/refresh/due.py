"""Find what is due for an index now: read its state, compare it with the table, decide."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyiceberg.io import FileIO
from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.lifecycle.policy.decide import decide
from puffin_ann.lifecycle.policy.decision import Decision
from puffin_ann.lifecycle.policy.inputs import Change, IndexState
from puffin_ann.lifecycle.versions.base_version import BaseVersion, version_to_refresh
from puffin_ann.lifecycle.versions.index_state import change_in, state_of
from puffin_ann.lifecycle.versions.unreadable import Unreadable, find_in_lost_files
from puffin_ann.moments import now_ms
from puffin_ann.search.shards.opening.rows import coverage_without
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import LiveState, view_of
from puffin_ann.search.version.versions import find_versions

log = logging.getLogger("puffin_ann")

Find = Callable[[FileIO, IndexVersion], Unreadable]
"""Returns what of a version cannot be read."""


@dataclass(frozen=True)
class Due:
    """What is to be done about an index, and what that was decided on.

    Attributes:
        decision: what is to be done.
        base: the version that a refresh starts from; None if there is none.
        rest: the same as if it did not cover the rows of shards that cannot be read.
        state: of that version; None if there is none.
    """

    decision: Decision
    base: BaseVersion | None = None
    rest: BaseVersion | None = None
    state: IndexState | None = None


def find_due(
    table: Table,
    declaration: IndexDeclaration,
    live: LiveState,
    *,
    maintenance: bool = False,
    force: bool = False,
    repair: bool = False,
    postpones: bool = False,
    find: Find = find_in_lost_files,
    at_ms: int | None = None,
) -> Due:
    """Decide what is due for an index; changes nothing.

    A shard of which a file is gone is made again by any refresh; of what is there only the shards
    that a refresh touches are read, later.

    Args:
        table: the table.
        declaration: of the index.
        live: of the snapshot that the index is to follow.
        maintenance: as in a maintenance window, which rebuilds shards of many tombstones.
        force: build although nothing asks for it.
        repair: make again what cannot be read; nothing else that is due is done.
        postpones: a build, merge or rebuild that is due waits: the index follows by masks and
            deltas alone.
        find: tells what that is; `find_unreadable` reads all of the version.
        at_ms: what counts as now, milliseconds since 1970; None for now.

    Raises:
        PuffinAnnError: the table or its column do not allow an index.
    """
    base = version_to_refresh(table, declaration, live)
    state = rest = None
    unreadable: tuple[str, ...] = ()
    if base is None:
        change = Change(live.snapshot_id, live.rows, rows_added=live.rows)
        unreadable = find_versions(table, declaration.name).problems
    else:
        found = find(table.io, base.version)
        if found.cells:
            log.warning("index %s: cells cannot be read: %s", declaration.name, found.cells)
        rest, damaged = _without(table, base, live, found.shards)
        state = state_of(table, base.version, Unreadable(damaged, found.cells))
        change = _with_lost(
            change_in(table, base.version, live, base.view, declaration), base, rest
        )
    decision = decide(
        state,
        change,
        declaration,
        now_ms=now_ms() if at_ms is None else at_ms,
        maintenance=maintenance,
        force=force,
        repair=repair,
        postpones=postpones,
        unreadable=unreadable,
    )
    return Due(decision, base, rest, state)


def _without(
    table: Table, base: BaseVersion, live: LiveState, damaged: Mapping[int, str]
) -> tuple[BaseVersion, Mapping[int, str]]:
    """Return a version as if it did not cover the rows of damaged shards, and what is wrong."""
    if not damaged:
        return base, damaged
    coverage, lost = coverage_without(table.io, base.version, damaged.keys())
    every = {number: damaged.get(number, "its rows blob is damaged") for number in sorted(lost)}
    for number, what in every.items():
        log.warning("index %s: shard %d cannot be read: %s", base.version.index, number, what)
    version = replace(base.version, coverage=coverage)
    return BaseVersion(version, view_of(table, version, live)), every


def _with_lost(change: Change, base: BaseVersion, rest: BaseVersion) -> Change:
    """Return a change with the rows that only damaged shards have, and what is read for them."""
    known = {file.path for file, _ in base.view.scanned}
    beside = sum(file.rows for file, _ in rest.view.scanned if file.path not in known)
    lost = rest.view.rows_to_scan - base.view.rows_to_scan
    return replace(change, rows_lost=lost, rows_beside=beside)
