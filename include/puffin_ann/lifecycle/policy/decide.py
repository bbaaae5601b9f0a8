"""Decide what a refresh does: pure, from the index's state, what changed, and the declaration.

A version and a snapshot differ by added rows and removed rows. Which shard a row was removed
from, and which of the added rows were relocated, is found out by the run; here both are expected in
proportion. So an action is an upper bound: a shard that turns out untouched is carried over as it
is. A run that has identified the rows may ask again.

What is due in the index itself waits for the next change that is published, or for a maintenance
window: a refresh of an unchanged table publishes nothing.
"""

from collections.abc import Iterable, Sequence

from puffin_ann.declaration import CENTROID, EXACT, IndexDeclaration, seconds_of
from puffin_ann.lifecycle.policy import cost as estimate
from puffin_ann.lifecycle.policy.cost import Cost
from puffin_ann.lifecycle.policy.decision import Decision, DeltaAction, ShardAction
from puffin_ann.lifecycle.policy.drift import why_drifted
from puffin_ann.lifecycle.policy.explain import (
    changed_fields,
    refresh_sentence,
    spoken_seconds,
    with_left,
)
from puffin_ann.lifecycle.policy.forecast import UNCHANGED, Expected, absorbable, apportion, expect
from puffin_ann.lifecycle.policy.inputs import Change, IndexState, ShardState
from puffin_ann.lifecycle.policy.required import Required, find_required
from puffin_ann.wording import counted


def decide(
    state: IndexState | None,
    change: Change,
    declaration: IndexDeclaration,
    *,
    now_ms: int,
    maintenance: bool = False,
    force: bool = False,
    repair: bool = False,
    postpones: bool = False,
    unreadable: Sequence[str] = (),
) -> Decision:
    """Decide what is due.

    Args:
        state: the base version of the index; None if none is published that can be read.
        change: the head of the table against that version.
        declaration: as it is now.
        now_ms: milliseconds since 1970.
        maintenance: this is a maintenance window: do what is due though nothing changed, and
            rebuild shards of many tombstones, too.
        force: publish changes, however few and fresh they are.
        repair: make again what cannot be read, and else follow the table alone: what is
            due besides waits for another run.
        postpones: a build, merge or rebuild that is due waits: follow the table by masks and deltas
            alone, where the version is a base for that.
        unreadable: without a state, published files that may have held one, and what is wrong.
    """
    if state is None:
        if not change.live_rows:
            return Decision(action="none", reason="no row is live, and no version is published")
        why = "no version of the index is published"
        if unreadable:
            why = f"no readable version of the index is published; {'; '.join(unreadable)}"
        return _build(change, estimate.first_build(declaration.algorithm, change.live_rows), why)
    why = _why_other(state, change, declaration)
    if not (why or change.rows or maintenance or state.is_damaged):
        return _nothing(state, change, _why_unchanged(state, change, declaration))
    why = why or _why_lost(state, change)
    why = why or ("" if repair else _why_worn(state, change, declaration, postpones=postpones))
    if why:
        return _build(change, estimate.whole_build(state, change.live_rows), why)
    if state.is_damaged and not change.live_rows:
        return _nothing(state, change, "no row is live, of which what is damaged could be made")
    waiting = _why_wait(state, change, declaration, now_ms, maintenance=maintenance, force=force)
    if waiting:
        return _nothing(state, change, waiting)
    expected = expect(state, change)
    keeps = repair or postpones
    due = find_required(state, expected, declaration, maintenance=maintenance, repair=keeps)
    refresh = _refresh(state, change, expected, due, repair=repair)
    why = _why_emptied(state, change, expected)
    why = why or ("" if keeps else _why_dearer(state, change, refresh))
    if why:
        return _build(change, estimate.whole_build(state, change.live_rows), why)
    return refresh


def find_shards_to_rebuild(
    state: IndexState, change: Change, declaration: IndexDeclaration, *, now_ms: int
) -> dict[int, float]:
    """Return the share of deleted rows, by shard that a maintenance window rebuilds for them.

    Removed rows count from when a refresh would publish them. Deltas are among them, unless all
    are merged; a shard of which nothing lives is not.

    The arguments are those of `decide`.
    """
    if _why_wait(state, change, declaration, now_ms, maintenance=True):
        return {}
    expected = expect(state, change)
    due = find_required(state, expected, declaration, maintenance=True)
    numbers = {*due.rebuild, *due.absorb}
    return {
        shard.shard_id: expected.ratio(shard) for shard in state.shards if shard.shard_id in numbers
    }


def _why_other(state: IndexState, change: Change, declaration: IndexDeclaration) -> str:
    """Say why no refresh can make the version what is declared."""
    if not change.live_rows:
        return ""  # nothing to build from; the version answers nothing, which is right
    if change.column:
        return change.column
    if state.fingerprint != declaration.fingerprint():
        return f"the declaration changed since it was built: {changed_fields(state, declaration)}"
    return ""


def _why_lost(state: IndexState, change: Change) -> str:
    """Say why what cannot be read cannot be made again without a build."""
    lost = [graph.shard_id for graph in state.graphs if graph.shard_id in state.unreadable]
    if not (state.lost_cells and lost and change.live_rows):
        return ""
    return (
        f"neither its cells nor shard {', '.join(map(str, lost))} can be read, and each would be "
        f"made of the other: {state.lost_cells}; {state.unreadable[lost[0]]}"
    )


def _why_worn(
    state: IndexState, change: Change, declaration: IndexDeclaration, *, postpones: bool = False
) -> str:
    """Say why the version itself, whatever changed since, is no base for a refresh any more.

    Where a build is postponed, it is one for as long as its shards hold a live row.
    """
    if not change.live_rows:
        return ""
    if postpones:
        return _why_emptied(state, change, UNCHANGED)
    made, declared = len(state.graphs), declaration.shards_built
    if made < declared <= change.live_rows:
        return f"it has {made} of the {declared} declared shards: there were fewer rows than those"
    # Where each row is compared, centroids may lie wherever they do.
    drifted = "" if state.algorithm in (CENTROID, EXACT) else why_drifted(state, declaration)
    return drifted or _why_emptied(state, change, UNCHANGED)


def _why_emptied(state: IndexState, change: Change, expected: Expected) -> str:
    """Say so if deltas hold all that is live: there is nothing then that they could be added to."""
    if state.algorithm == CENTROID or not change.live_rows:
        return ""
    deltas = expected.live_in(state.deltas) + expected.new
    if not deltas or expected.live_in(state.graphs):
        return ""
    return f"none of the rows its shards were built from is live, and {deltas:,} others are"


def _why_wait(
    state: IndexState,
    change: Change,
    declaration: IndexDeclaration,
    now_ms: int,
    *,
    maintenance: bool,
    force: bool = False,
) -> str:
    """Say why nothing is published now; empty if something is."""
    # What a waiting change would make due waits with it.
    due = find_required(state, UNCHANGED, declaration, maintenance=maintenance)
    if due.is_any:
        return ""
    if not change.rows:
        return with_left(f"nothing changed since snapshot {state.base_snapshot_id}", due.left)
    options = declaration.refresh
    lag = max(0, now_ms - change.oldest_ms) / 1000
    if force or change.rows >= options.min_rows or lag > seconds_of(options.max_lag):
        return ""
    return (
        f"{change.rows:,} changed rows are fewer than refresh.min_rows {options.min_rows:,}, and "
        f"the oldest change is {spoken_seconds(lag)} old, within refresh.max_lag "
        f"{options.max_lag}: searches mask and scan them"
    )


def _why_unchanged(state: IndexState, change: Change, declaration: IndexDeclaration) -> str:
    """Say that nothing changed, and what is to be done all the same."""
    said = f"nothing changed since snapshot {state.base_snapshot_id}"
    build = _why_worn(state, change, declaration)
    if build:
        return f"{said}; the next change or maintenance builds it again, since {build}"
    due = find_required(state, UNCHANGED, declaration, maintenance=True)
    if due.merge:
        said += f"; the next change or maintenance merges, since {due.merge}"
    worn = {**due.rebuild, **due.absorb}
    if worn:
        numbers = ", ".join(map(str, sorted(worn)))
        said += f"; the next maintenance rebuilds shard {numbers}, of which {worn[min(worn)]}"
    return with_left(said, due.left)


def _why_dearer(state: IndexState, change: Change, refresh: Decision) -> str:
    """Say why building is better than this refresh; empty if it is not."""
    if state.algorithm == CENTROID or not change.live_rows:
        return ""
    build = estimate.whole_build(state, change.live_rows).seconds
    # Not for the sake of what a build would carry over or read just the same.
    if refresh.seconds > build and (refresh.merges or refresh.delta):
        return (
            f"refreshing is expected to take {refresh.seconds:,.1f} s, "
            f"building it again {build:,.1f} s"
        )
    return ""


def _build(change: Change, cost: Cost, reason: str) -> Decision:
    return Decision(
        action="build",
        reason=reason,
        rows_added=change.rows_added,
        rows_gone=change.rows_gone,
        other_bytes=cost.written,
        other_seconds=cost.seconds,
    )


def _nothing(state: IndexState, change: Change, reason: str) -> Decision:
    # What is not published again is not copied either.
    shards = (_action(shard, "none", reason, 0, Cost()) for shard in state.shards)
    return Decision(
        action="none",
        reason=reason,
        shards=tuple(shards),
        rows_added=change.rows_added,
        rows_gone=change.rows_gone,
    )


def _refresh(
    state: IndexState, change: Change, expected: Expected, due: Required, *, repair: bool
) -> Decision:
    delta = None if due.merge else _new_delta(state, change, expected, due, absorbs=not repair)
    shards = tuple(_shard_actions(state, change, expected, due, delta))
    other = estimate.reading(state, change.rows_added + change.rows_beside)
    return Decision(
        action="refresh",
        reason=with_left(refresh_sentence(state, change, shards, delta, due.merge), due.left),
        unreadable=tuple(sorted(state.unreadable)),
        remakes_cells=bool(due.cells),
        rows_lost=change.rows_lost,
        shards=shards,
        delta=delta,
        merges=bool(due.merge),
        matches=expected.matches,
        rows_added=change.rows_added,
        rows_gone=change.rows_gone,
        other_bytes=other.written,
        other_seconds=other.seconds,
    )


def _new_delta(
    state: IndexState, change: Change, expected: Expected, due: Required, *, absorbs: bool
) -> DeltaAction | None:
    # Of rows that an unreadable shard had, some may belong into no shard that is built again.
    if state.algorithm == CENTROID or not (change.rows_added or due.absorb or state.unreadable):
        return None
    forced = [delta for delta in state.deltas if delta.shard_id in due.absorb]
    rows = expected.new + expected.live_in(forced)
    rest = [delta for delta in state.deltas if delta.shard_id not in due.absorb]
    absorbed = [*forced, *(absorbable(rows, rest) if absorbs else ())]
    rows = expected.new + expected.live_in(absorbed)
    cost = estimate.new_delta(state, rows)
    reason = (
        f"{counted(expected.new, 'row')} added" if change.rows_added else _why_delta(state, due)
    )
    if expected.matches:
        reason += f", if the {expected.relocated:,} others were only relocated"
    return DeltaAction(
        shard_id=state.next_shard_id,
        reason=reason,
        rows=rows,
        absorbed=tuple(sorted(delta.shard_id for delta in absorbed)),
        bytes_written=cost.written,
        seconds=cost.seconds,
    )


def _why_delta(state: IndexState, due: Required) -> str:
    if due.absorb.keys() - state.unreadable.keys():
        return "deleted rows leave deltas"
    return "rows of deltas that cannot be read" if due.absorb else "none is expected"


def _shard_actions(
    state: IndexState,
    change: Change,
    expected: Expected,
    due: Required,
    delta: DeltaAction | None,
) -> Iterable[ShardAction]:
    relocated = apportion(
        expected.relocated, {shard.shard_id: shard.rows for shard in state.shards}
    )
    added = apportion(_merging(state, expected) if due.merge else 0, _capacity(state.graphs))
    for shard in state.shards:
        number = shard.shard_id
        deleted = expected.deleted.get(number, 0)
        if number in due.rebuild:
            rows = expected.live(shard) + added[number]
            cost = estimate.rebuilt(state, shard, rows)
            yield _action(shard, "rebuild", due.rebuild[number], rows, cost)
        elif due.merge and shard.kind == "graph":
            cost = estimate.merged(state, shard, deleted, added[number])
            yield _action(
                shard, "merge", due.merge, added[number] + deleted + relocated[number], cost
            )
        elif due.merge:
            yield _action(shard, "merge", "goes into shards", expected.live(shard), Cost())
        elif delta and number in delta.absorbed:
            reason = due.absorb.get(number, f"goes into delta {delta.shard_id}")
            yield _action(shard, "merge", reason, expected.live(shard), Cost())
        else:
            yield _in_place(state, change, expected, shard, relocated[number])


def _merging(state: IndexState, expected: Expected) -> int:
    return expected.new + expected.live_in(state.deltas)


def _capacity(graphs: Sequence[ShardState]) -> dict[int, int]:
    """Return weights by which rows are expected to fall into shards, large enough for any rows."""
    return {graph.shard_id: max(1, graph.rows) << 40 for graph in graphs}


def _in_place(
    state: IndexState, change: Change, expected: Expected, shard: ShardState, relocated: int
) -> ShardAction:
    """Say what is done to a shard whose blob is carried over."""
    deleted = expected.deleted.get(shard.shard_id, 0)
    spared = change.identified is not None and not (expected.relocated or deleted)
    if not shard.rows or spared:
        return _action(
            shard, "none", "none of its rows was relocated or removed", 0, _kept(state, shard)
        )
    if expected.matches:
        reason = f"about {relocated:,} of its rows relocated, {deleted:,} removed"
        cost = estimate.remapped(state, shard, deleted)
        return _action(shard, "remap", reason, relocated + deleted, cost)
    if change.rows_gone and shard.live:
        reason = f"about {deleted:,} of its rows removed"
        return _action(shard, "mask", reason, deleted, estimate.masked(state, shard, deleted))
    return _action(
        shard, "none", "none of its rows was relocated or removed", 0, _kept(state, shard)
    )


def _kept(state: IndexState, shard: ShardState) -> Cost:
    return estimate.untouched(state, shard)


def _action(shard: ShardState, action: str, reason: str, rows: int, cost: Cost) -> ShardAction:
    return ShardAction.model_validate(
        {
            "shard_id": shard.shard_id,
            "kind": shard.kind,
            "action": action,
            "reason": reason,
            "rows": rows,
            "bytes_written": cost.written,
            "bytes_copied": cost.copied,
            "seconds": cost.seconds,
        }
    )
