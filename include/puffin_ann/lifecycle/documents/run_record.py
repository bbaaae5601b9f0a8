"""What one run did to an index."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, FiniteFloat

from puffin_ann.moments import Moment

RunAction = Literal["build", "refresh", "merge", "rebuild", "rename", "evaluate", "published"]
"""What a run did: a refresh that merges deltas or rebuilds shards is called by that."""


class RunRecord(BaseModel):
    """What one run did.

    Attributes:
        run_id: of the run; it says what triggered it.
        at_ms: when it was planned, milliseconds since 1970.
        reason: why it did what it did, in one sentence.
        base_snapshot_id: snapshot whose rows it covers.
        rows: live rows indexed.
        rows_added: rows that the version before did not have, or all.
        rows_gone: rows of the version before that are not live any more.
        bytes_written: new bytes of the index's blobs, but for routing, partitions and coverage.
        bytes_copied: bytes carried over from published files, other indexes' included.
        seconds: of its stages up to publication.
        recall: measured before publication; None if it was not.
        coverage: share of the live rows that it covers; known of evaluations.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    action: RunAction
    at_ms: Moment
    reason: str = ""
    base_snapshot_id: int = 0
    rows: int = 0
    rows_added: int = 0
    rows_gone: int = 0
    bytes_written: int = 0
    bytes_copied: int = 0
    seconds: FiniteFloat = 0.0
    recall: FiniteFloat | None = None
    coverage: FiniteFloat | None = None
