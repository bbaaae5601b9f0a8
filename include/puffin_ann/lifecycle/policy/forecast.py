"""What is expected of rows before they are read: pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from puffin_ann.declaration import CENTROID
from puffin_ann.lifecycle.policy.inputs import Change, IndexState, ShardState

GROWTH = 2
"""A new delta absorbs older ones of up to so many times its rows. Sizes of deltas then at least
double from one to the next, so their number stays logarithmic, and so does how often a row is
rewritten."""


@dataclass(frozen=True)
class Expected:
    """What becomes of the added and removed rows, as far as that can be told before they are read.

    Attributes:
        matches: whether added rows may be removed rows.
        relocated: rows that stay in their shard with another locator.
        new: rows that are new to the index.
        deleted: by shard, rows that become tombstones.
    """

    matches: bool
    relocated: int
    new: int
    deleted: Mapping[int, int]

    def live(self, shard: ShardState) -> int:
        """Rows of a shard that are live then."""
        return shard.live - self.deleted.get(shard.shard_id, 0)

    def live_in(self, shards: Iterable[ShardState]) -> int:
        """Rows of shards that are live then."""
        return sum(self.live(shard) for shard in shards)

    def ratio(self, shard: ShardState) -> float:
        """Share of a shard's rows that is then deleted."""
        return 1 - self.live(shard) / shard.rows if shard.rows else 0.0


UNCHANGED = Expected(matches=False, relocated=0, new=0, deleted={})


def expect(state: IndexState, change: Change) -> Expected:
    """Return what was identified, where it was; else what is likely, in proportion to shards."""
    restored = min(change.rows_restored, sum(shard.tombstones for shard in state.shards))
    matches = change.rows_added > 0 and (change.rows_gone > 0 or restored > 0)
    matches = matches and state.algorithm != CENTROID  # it holds no row that could be matched
    relocated = (
        min(change.rows_added - change.rows_restored, change.rows_left_behind) if matches else 0
    )
    known = change.identified
    if known is not None:
        return Expected(matches, known.relocated, known.new, known.deleted)
    deleted = apportion(
        change.rows_gone - relocated, {shard.shard_id: shard.live for shard in state.shards}
    )
    back = restored if matches else 0
    return Expected(matches, relocated + back, change.rows_added - relocated - back, deleted)


def apportion(total: int, weights: Mapping[int, int]) -> dict[int, int]:
    """Split a number in proportion to weights: whole numbers that sum up to it, or to all weights.

    No part is above its weight.
    """
    whole = sum(weights.values())
    total = min(total, whole)
    if not total:
        return dict.fromkeys(weights, 0)
    parts: dict[int, int] = {}
    taken = passed = 0
    for key, weight in weights.items():
        passed += weight
        upto = total * passed // whole
        parts[key] = upto - taken
        taken = upto
    return parts


def absorbable(rows: int, deltas: Iterable[ShardState]) -> list[ShardState]:
    """Return the deltas that a new one of so many rows takes the place of, the smallest first.

    Sizes count deleted rows, too: so a delta's size never changes, and sizes go on doubling.
    """
    absorbed: list[ShardState] = []
    for delta in sorted(deltas, key=lambda delta: (delta.rows, delta.shard_id)):
        if not rows or delta.rows > GROWTH * rows:
            break
        absorbed.append(delta)
        rows += delta.live
    return absorbed
