"""Words for what is decided: one sentence for people."""

from collections.abc import Sequence

from puffin_ann.declaration import SHAPING, IndexDeclaration
from puffin_ann.foreign_json import parse
from puffin_ann.lifecycle.policy.decision import DeltaAction, ShardAction
from puffin_ann.lifecycle.policy.inputs import Change, IndexState
from puffin_ann.wording import counted


def changed_fields(state: IndexState, declaration: IndexDeclaration) -> str:
    """Name the fields that shape the index and are not as they were when it was built."""
    try:
        before = parse(state.declaration)
    except ValueError:
        before = None
    if not isinstance(before, dict):
        return "its fingerprint is another"
    before.setdefault("vectors", "float32")  # of earlier releases, which had no others
    before.setdefault("include", [])
    now = declaration.model_dump(mode="json", include=set(SHAPING))
    changed = [
        f"{name} {before.get(name)!r} → {value!r}"
        for name, value in sorted(now.items())
        if before.get(name) != value
    ]
    return ", ".join(changed) or "its fingerprint is another"


def refresh_sentence(
    state: IndexState,
    change: Change,
    shards: Sequence[ShardAction],
    delta: DeltaAction | None,
    merge: str,
) -> str:
    """Say in one sentence what a refresh does, and because of what."""
    actions = [*_repairs(state, change), *_actions(state, change, shards, delta, merge)]
    return f"{_rows_changed(state, change)}: {'; '.join(actions or ['cover what is live'])}"


def _rows_changed(state: IndexState, change: Change) -> str:
    since = f"since snapshot {state.base_snapshot_id}"
    if not change.rows:
        return f"nothing changed {since}, but work is required"
    if not change.live_rows:
        return f"no row is live any more {since}"
    counts = ((change.rows_added, "added"), (change.rows_gone, "removed"))
    told = (f"{counted(count, 'row')} {verb}" for count, verb in counts if count)
    return f"{' and '.join(told)} {since}"


def _repairs(state: IndexState, change: Change) -> list[str]:
    cells = "make the cells again of the rows of all shards, since they cannot be read: "
    repairs = [f"{cells}{state.lost_cells}"] if state.lost_cells else []
    if not state.unreadable:
        return repairs
    numbers = ", ".join(map(str, sorted(state.unreadable)))
    why = state.unreadable[min(state.unreadable)]
    return [
        *repairs,
        f"make shard {numbers} again of {counted(change.rows_lost, 'row')} read from the table, "
        f"since it cannot be read: {why}",
    ]


def _actions(
    state: IndexState,
    change: Change,
    shards: Sequence[ShardAction],
    delta: DeltaAction | None,
    merge: str,
) -> list[str]:
    actions = [f"merge, since {merge}"] if merge else []
    rebuilt = [
        shard
        for shard in shards
        if shard.action == "rebuild" and shard.shard_id not in state.unreadable
    ]
    if rebuilt:
        numbers = ", ".join(str(shard.shard_id) for shard in rebuilt)
        actions.append(f"rebuild shard {numbers}, of which {rebuilt[0].reason}")
    remapped = sum(shard.action == "remap" for shard in shards)
    if remapped:
        actions.append(
            "identify them, and remap those that were only relocated, in "
            f"{counted(remapped, 'shard')}"
        )
    masked = sum(shard.action == "mask" for shard in shards)
    if masked:
        actions.append(f"mask them in {counted(masked, 'shard')}")
    if delta is not None and (delta.rows or not state.unreadable):
        actions.append(_delta(delta, change))
    if not shards:
        added = f"centroids of {counted(change.files_added, 'file')} are added"
        actions.append(f"{added}, {change.files_gone:,} leave")
    return actions


def _delta(delta: DeltaAction, change: Change) -> str:
    """Say what becomes a delta; which rows are new is known once they are read, and not before."""
    absorbed = (
        f", in place of {', '.join(map(str, delta.absorbed))} as well" if delta.absorbed else ""
    )
    if not delta.rows and change.rows_added:
        return f"those that are new become delta {delta.shard_id}{absorbed}"
    if not delta.rows:
        return f"no row is expected in a delta{absorbed}"
    become = "becomes" if delta.rows == 1 else "become"
    return f"{counted(delta.rows, 'row')} {become} delta {delta.shard_id}{absorbed}"


def with_left(said: str, left: str) -> str:
    """Add to what is done what would be due and waits; `left` is empty where nothing does."""
    return f"{said}; {left}" if left else said


def spoken_seconds(seconds: float) -> str:
    """Return a time as people say it: in its largest fitting unit."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"
