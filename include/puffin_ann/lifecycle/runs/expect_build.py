"""Tell what costly work would take, and whether a person is asked first; changes nothing."""

from collections.abc import Mapping
from typing import Any

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lifecycle.build.plan import nothing_to_do
from puffin_ann.lifecycle.documents.run import Document
from puffin_ann.lifecycle.policy import cost as estimate
from puffin_ann.lifecycle.policy.approval import BuildCost, rework, why_ask
from puffin_ann.lifecycle.refresh.due import Due, find_due
from puffin_ann.lifecycle.runs.build import newest_published
from puffin_ann.search.open_index import require_snapshot
from puffin_ann.search.version.snapshot_view import LiveState, live_state


class ExpectedBuild(Document):
    """A whole build, or the work of a refresh on whole shards, before it is planned.

    Attributes:
        reason: why it is done, or why it is not.
        cost: what it is expected to take; None if nothing of the kind is done.
        asks: which bounds of the declaration it passes; empty if nobody is asked.
        is_first: no version is published that could be refreshed without it.
    """

    reason: str
    cost: BuildCost | None = None
    asks: str = ""
    is_first: bool = False


def expect_build(
    declaration: IndexDeclaration, *, overrides: Mapping[str, Any] | None = None
) -> ExpectedBuild:
    """Return what a run of the build would do.

    Args:
        declaration: the index.
        overrides: as of `runs.build.plan_build`.

    Raises:
        PuffinAnnError: the table or its column do not allow an index.
    """
    given = dict(overrides or {})
    force = bool(given.pop("force", False))
    declaration = declaration.overridden(given)
    table = load_table(declaration.table)
    live = live_state(table, require_snapshot(table, None).snapshot_id)
    newest = newest_published(table, declaration.name, live)
    nothing = nothing_to_do(declaration, newest, force=force)
    if nothing is not None:
        return ExpectedBuild(reason=nothing)
    due = find_due(table, declaration, live, maintenance=True)
    why = "a build was asked for"
    if due.decision.action == "build":
        why = due.decision.reason
    elif found := why_ask(rework(due.decision), declaration.build.approve_above):
        why = f"{due.decision.reason}; to refresh it so would take {found}"
    return _expected(declaration, due, live, why)


def expect_due(
    declaration: IndexDeclaration, *, maintenance: bool = False, force: bool = False
) -> ExpectedBuild:
    """Return what a refresh would find to be due that may have to be approved.

    That is a whole build, or merges and rebuilds of shards.

    Args:
        declaration: the index.
        maintenance: as of `runs.refresh.plan_refresh`.
        force: as above.

    Raises:
        PuffinAnnError: the table or its column do not allow an index.
    """
    table = load_table(declaration.table)
    live = live_state(table, require_snapshot(table, None).snapshot_id)
    due = find_due(table, declaration, live, maintenance=maintenance, force=force)
    if due.decision.action == "build":
        return _expected(declaration, due, live, due.decision.reason)
    cost = rework(due.decision)
    asks = why_ask(cost, declaration.build.approve_above)
    return ExpectedBuild(reason=due.decision.reason, cost=cost if asks else None, asks=asks)


def _expected(declaration: IndexDeclaration, due: Due, live: LiveState, why: str) -> ExpectedBuild:
    if due.state is None:
        cost = estimate.first_build(declaration.algorithm, live.rows)
    else:
        cost = estimate.whole_build(due.state, live.rows)
    expected = BuildCost(rows=live.rows, bytes=cost.written, seconds=cost.seconds)
    asks = why_ask(expected, declaration.build.approve_above)
    return ExpectedBuild(reason=why, cost=expected, asks=asks, is_first=due.state is None)
