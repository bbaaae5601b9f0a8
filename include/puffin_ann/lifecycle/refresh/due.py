"""Find what is due for an index now: read its state, compare it with the table, decide."""

from dataclasses import dataclass

from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.lifecycle.policy.decide import decide
from puffin_ann.lifecycle.policy.decision import Decision
from puffin_ann.lifecycle.policy.inputs import Change, IndexState
from puffin_ann.lifecycle.versions.base_version import BaseVersion, version_to_refresh
from puffin_ann.lifecycle.versions.index_state import change_in, state_of
from puffin_ann.moments import now_ms
from puffin_ann.search.snapshot_view import LiveState
from puffin_ann.search.versions import find_versions


@dataclass(frozen=True)
class Due:
    """What is to be done about an index, and what that was decided on.

    Attributes:
        decision: what is to be done.
        base: the version that a refresh starts from; None if there is none.
        state: of that version; None if there is none.
    """

    decision: Decision
    base: BaseVersion | None = None
    state: IndexState | None = None


def find_due(
    table: Table,
    declaration: IndexDeclaration,
    live: LiveState,
    *,
    maintenance: bool = False,
    force: bool = False,
    at_ms: int | None = None,
) -> Due:
    """Decide what is due for an index; changes nothing.

    Args:
        table: the table.
        declaration: of the index.
        live: of the snapshot that the index is to follow.
        maintenance: as in a maintenance window, which rebuilds shards of many tombstones.
        force: build although nothing asks for it.
        at_ms: what counts as now, milliseconds since 1970; None for now.

    Raises:
        PuffinAnnError: the table or its column do not allow an index.
    """
    base = version_to_refresh(table, declaration, live)
    if base is None:
        state, change = None, Change(live.snapshot_id, live.rows, rows_added=live.rows)
        unreadable = find_versions(table, declaration.name).problems
    else:
        state = state_of(table, base.version)
        change = change_in(table, base.version, live, base.view, declaration)
        unreadable = ()
    decision = decide(
        state,
        change,
        declaration,
        now_ms=now_ms() if at_ms is None else at_ms,
        maintenance=maintenance,
        force=force,
        unreadable=unreadable,
    )
    return Due(decision, base, state)
