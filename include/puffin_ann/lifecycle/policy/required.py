"""What a version itself asks for, whatever few rows changed: pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.lifecycle.policy.forecast import Expected
from puffin_ann.lifecycle.policy.inputs import IndexState


@dataclass(frozen=True)
class Required:
    """What is due whatever few rows changed.

    Attributes:
        merge: why deltas are merged; empty if they are not.
        rebuild: by shard, why it is built again alone.
        absorb: by delta, why its rows go into a new one: without those that are deleted, or read
            from the table, since it is unreadable.
        cells: why they are made again of the rows of shards.
        left: what would be due, and why it waits: an earlier run could not do it; empty if nothing.
    """

    merge: str
    rebuild: Mapping[int, str]
    absorb: Mapping[int, str]
    cells: str = ""
    left: str = ""

    @property
    def is_any(self) -> bool:
        """Tell whether anything is."""
        return bool(self.merge or self.rebuild or self.absorb or self.cells)


def find_required(
    state: IndexState,
    expected: Expected,
    declaration: IndexDeclaration,
    *,
    maintenance: bool = False,
    repair: bool = False,
) -> Required:
    """Return what is due.

    Args:
        state: of the version.
        expected: what becomes of the rows that changed.
        declaration: as it is now.
        maintenance: rebuild shards of many tombstones, too.
        repair: make what is unreadable again, and leave all else as it is.
    """
    merge = left = ""
    if not repair:
        merge = _why_merge(state, expected, declaration)
        left = merge and _why_left(state, expected, declaration)
        merge = "" if left else merge
    reasons = {number: f"it cannot be read: {why}" for number, why in state.unreadable.items()}
    if maintenance and not repair:
        reasons = {**_why_worn(state, expected, declaration), **reasons}
    # A shard of which nothing lives cannot be built of anything: it stays as it is, masked.
    rebuild = {
        graph.shard_id: reasons[graph.shard_id]
        for graph in state.graphs
        if graph.shard_id in reasons
        and (expected.live(graph) or graph.shard_id in state.unreadable)
    }
    absorb = {
        delta.shard_id: reasons[delta.shard_id]
        for delta in state.deltas
        if delta.shard_id in reasons and not merge
    }
    return Required(merge, rebuild, absorb, state.lost_cells, left)


def _why_worn(
    state: IndexState, expected: Expected, declaration: IndexDeclaration
) -> dict[int, str]:
    bound, target = declaration.rebuild.tombstone_ratio, declaration.recall_target
    return {
        shard.shard_id: f"{expected.ratio(shard):.0%} of its rows are deleted, above "
        f"rebuild.tombstone_ratio {bound:.0%}"
        for shard in state.shards
        if expected.ratio(shard) > bound
        and not state.undone.holds_rebuild(shard.shard_id, expected.live(shard), target)
    }


def _why_merge(state: IndexState, expected: Expected, declaration: IndexDeclaration) -> str:
    graph, delta = expected.live_in(state.graphs), _in_deltas(state, expected)
    bound = declaration.refresh.delta_ratio
    if not graph or not delta or delta <= bound * graph:
        return ""
    return (
        f"deltas would hold {delta:,} live rows, {delta / graph:.1%} of those in shards, above "
        f"refresh.delta_ratio {bound:.1%}"
    )


def _why_left(state: IndexState, expected: Expected, declaration: IndexDeclaration) -> str:
    """Say why a merge that is due waits for more rows; empty if it does not."""
    undone = state.undone
    rows = _in_deltas(state, expected)
    if not undone.holds_merge(rows, declaration.recall_target):
        return ""
    return (
        f"deltas would hold {rows:,} live rows, which are merged from {undone.merges_from:,} on, "
        f"since a merge was left undone by run {undone.run_id}: {undone.told(declaration.name)}"
    )


def _in_deltas(state: IndexState, expected: Expected) -> int:
    return expected.live_in(state.deltas) + expected.new
