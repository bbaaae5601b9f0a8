"""Which whole builds a person is asked about first: pure, from their expected cost."""

from pydantic import BaseModel, ConfigDict

from puffin_ann.declaration import ApprovalBounds, seconds_of

GROWTH = 1.2
"""An approval holds for a cost that has grown by no more than a fifth."""


class BuildCost(BaseModel):
    """What a whole build is expected to take.

    Attributes:
        rows: live rows that are built.
        bytes: new bytes; 0 where no version tells how many a row takes.
        seconds: work of one process.
    """

    model_config = ConfigDict(frozen=True)

    rows: int
    bytes: int
    seconds: float


def why_ask(cost: BuildCost, bounds: ApprovalBounds | None) -> str:
    """Say which bounds a build passes; empty if nobody is to be asked."""
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
