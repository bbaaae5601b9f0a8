"""What a person is asked about first: pure, from its expected cost."""

from pydantic import BaseModel, ConfigDict

from puffin_ann.declaration import ApprovalBounds, seconds_of
from puffin_ann.lifecycle.policy.decision import Decision

GROWTH = 1.2
"""An approval holds for a cost that has grown by no more than a fifth."""


class BuildCost(BaseModel):
    """What a whole build, or the work of a refresh on whole shards, is expected to take.

    Attributes:
        rows: live rows that are built, or inserted into shards.
        bytes: new bytes; 0 where no version tells how many a row takes.
        seconds: work of one process.
    """

    model_config = ConfigDict(frozen=True)

    rows: int
    bytes: int
    seconds: float


def rework(decision: Decision) -> BuildCost:
    """Return what merges and rebuilds of shards cost that a refresh does and could leave for later.

    Masks, locators and deltas are not among it: they cost what was changed in the table. Nor is
    what is made again since it cannot be read: that does not wait.
    """
    shards = [
        shard
        for shard in decision.shards
        if shard.kind == "graph"
        and shard.action in ("merge", "rebuild")
        and shard.shard_id not in decision.unreadable
    ]
    return BuildCost(
        rows=sum(shard.rows for shard in shards),
        bytes=sum(shard.bytes_written for shard in shards),
        seconds=sum(shard.seconds for shard in shards),
    )


def why_ask(cost: BuildCost, bounds: ApprovalBounds | None) -> str:
    """Say which bounds a cost passes; empty if nobody is to be asked."""
    return "; ".join(
        f"{shown} {name}, above build.approve_above.{field} {bound}"
        for field, name, shown, value, limit, bound in _figures(cost, bounds)
        if value > limit
    )


def why_ask_again(cost: BuildCost, approved: BuildCost, bounds: ApprovalBounds | None) -> str:
    """Say what of a build has grown too much since it was approved; empty if nothing has.

    Of what has a bound, what is within it, or within a fifth more than was approved, is in order.
    """
    before = {field: value for field, _, _, value, _, _ in _figures(approved, bounds)}
    return "; ".join(
        f"{shown} {name}, more than a fifth above what was approved"
        for field, name, shown, value, limit, _ in _figures(cost, bounds)
        if value > max(limit, GROWTH * before[field])
    )


def _figures(
    cost: BuildCost, bounds: ApprovalBounds | None
) -> list[tuple[str, str, str, float, float, str]]:
    """Return for each bound its field, what it is of, the figure in words, figure and bound."""
    if bounds is None:
        return []
    found: list[tuple[str, str, str, float, float, str]] = []
    if bounds.rows is not None:
        rows = f"{cost.rows:,}", float(cost.rows), float(bounds.rows), f"{bounds.rows:,}"
        found.append(("rows", "rows", *rows))
    if bounds.bytes is not None:
        size = f"{cost.bytes:,}", float(cost.bytes), float(bounds.bytes), f"{bounds.bytes:,}"
        found.append(("bytes", "new bytes", *size))
    if bounds.work is not None:
        work = f"{cost.seconds:,.0f} s", cost.seconds, float(seconds_of(bounds.work)), bounds.work
        found.append(("work", "of work", *work))
    return found
