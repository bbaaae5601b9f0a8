"""What a run was to do to whole shards and left undone, since they would have lost recall: pure.

Rows that were to be merged stay in deltas, where searches compare each, and deleted rows stay
masked: nothing is lost but time. To try again costs as much as the first time and most likely ends
the same, so it waits until there is twice as much to do.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

GROWTH = 2
"""So many times the rows have to be in deltas, or as few be left of a shard, for another try. Tries
are logarithmic in the rows then."""

Count = Annotated[int, Field(ge=0, lt=1 << 63)]


class Undone(BaseModel):
    """What was left undone; kept in the routing blob until it is done, or the index is built again.

    Attributes:
        run_id: the run that left it.
        reason: what it found, in a sentence.
        target: the recall that was declared; with a lower one all is tried again.
        refused: shards that stayed as they were.
        delta_rows: live rows of deltas that were left; 0 if no merge was.
        live_rows: live rows of shards that were not built again for their deleted ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str = ""
    reason: str = ""
    target: FiniteFloat = 0.0
    refused: tuple[Count, ...] = ()
    delta_rows: Count = 0
    live_rows: dict[Count, Count] = {}

    @property
    def is_any(self) -> bool:
        """Tell whether anything was."""
        return bool(self.delta_rows or self.live_rows)

    @property
    def merges_from(self) -> int:
        """Rows in deltas from which on a merge is tried again; 0 if none was left."""
        return GROWTH * self.delta_rows

    def holds_merge(self, rows: int, target: float) -> bool:
        """Tell whether a merge of so many rows waits for more of them."""
        return target >= self.target and rows < self.merges_from

    def holds_rebuild(self, shard_id: int, live: int, target: float) -> bool:
        """Tell whether a shard with so many live rows waits for fewer of them."""
        left = self.live_rows.get(shard_id, 0)
        return target >= self.target and GROWTH * live > left > 0

    def told(self, index: str) -> str:
        """Say what was left, why, and what to do; empty where nothing was."""
        if not self.is_any:
            return ""
        return f"{self.reason}; {advice(index)}"


def advice(index: str) -> str:
    """Say what brings into shards what cannot be merged."""
    return (
        f"searches stay right and compare more rows one by one; 'puffin-ann build {index} --force' "
        "builds the index for all rows and measures again how wide to search"
    )
