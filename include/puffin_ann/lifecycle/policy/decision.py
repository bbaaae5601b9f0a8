"""What a refresh decides, as data: shown to people, waited for by them, then carried out."""

from math import inf
from typing import Literal

from pydantic import BaseModel, ConfigDict

Action = Literal["none", "mask", "remap", "merge", "rebuild"]
"""What is done to one shard: nothing, tombstones for deleted rows, new locators for relocated rows
(and tombstones), deltas inserted into it (and all of that), or building it from its live rows
(and from deltas, if they are merged in the same run). A delta with `merge` is used up: by the graph
shards if the decision merges, else by the new delta that absorbs it."""


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ShardAction(_Data):
    """What is to be done to one shard, and what that is expected to take.

    Attributes:
        shard_id: of the routing blob; graph shards and deltas alike.
        kind: `graph` or `delta`.
        rows: rows expected to be touched.
        bytes_written: new bytes expected.
        bytes_copied: bytes of blobs expected to be carried over as they are.
        seconds: work expected, by the rates that earlier runs recorded.
    """

    shard_id: int
    kind: Literal["graph", "delta"]
    action: Action
    reason: str
    rows: int
    bytes_written: int
    bytes_copied: int
    seconds: float


class DeltaAction(_Data):
    """The delta shard that added rows become.

    Attributes:
        shard_id: number of the new delta.
        rows: rows expected in it, those of absorbed deltas included; without any, none is made.
        absorbed: deltas that it takes the place of, so that their number stays small.
    """

    shard_id: int
    reason: str
    rows: int
    absorbed: tuple[int, ...]
    bytes_written: int
    seconds: float


class Decision(_Data):
    """What a run does to an index, and why.

    Attributes:
        action: `none`; `refresh`, by the actions of shards and the delta; or `build`, all again.
        reason: one sentence for people.
        shards: an action for each shard of the version refreshed, also where it is `none`.
        delta: the new delta, if rows are added and not merged.
        merges: the rows of every delta, and those added, go into graph shards.
        matches: added rows may be removed rows, so that both are identified.
        unreadable: shards that cannot be read; they are made again of rows of the table.
        remakes_cells: the cells cannot be read; they are made again of the rows of shards.
        rows_lost: live rows that only unreadable shards have.
        rows_added: live rows that the version does not hold.
        rows_gone: rows that it holds and that are not live where it has them.
        other_bytes: new bytes that belong to no shard: routing, coverage and centroids; for a
            build, those of the whole index.
        other_seconds: work that belongs to no shard: reading and identifying rows; for a build,
            all of it.
    """

    action: Literal["none", "refresh", "build"]
    reason: str
    shards: tuple[ShardAction, ...] = ()
    delta: DeltaAction | None = None
    merges: bool = False
    matches: bool = False
    unreadable: tuple[int, ...] = ()
    remakes_cells: bool = False
    rows_lost: int = 0
    rows_added: int = 0
    rows_gone: int = 0
    other_bytes: int = 0
    other_seconds: float = 0.0

    @property
    def bytes_written(self) -> int:
        """New bytes expected in all."""
        delta = self.delta.bytes_written if self.delta else 0
        return sum(shard.bytes_written for shard in self.shards) + delta + self.other_bytes

    @property
    def bytes_copied(self) -> int:
        """Bytes expected to be carried over as they are."""
        return sum(shard.bytes_copied for shard in self.shards)

    @property
    def seconds(self) -> float:
        """Work expected, in seconds of one process."""
        delta = self.delta.seconds if self.delta else 0.0
        return sum(shard.seconds for shard in self.shards) + delta + self.other_seconds


class Rates(_Data):
    """How fast this index's work went when it was last done; kept in the routing blob.

    Attributes:
        read: rows read and identified a second.
        insert: rows inserted into shards a second.
        build: rows built into shards a second.
        copy_bytes: bytes carried over a second.
    """

    read: float = 500_000.0
    insert: float = 10_000.0
    build: float = 20_000.0
    copy_bytes: float = 200e6

    @property
    def is_sound(self) -> bool:
        """Tell whether work can go so fast."""
        return all(0 < rate < inf for rate in self.model_dump().values())


MEASURED_ROWS = 1000
"""Fewer rows than this say nothing about how fast work goes."""


class Drift(_Data):
    """How well the centroids and bounds fit the rows added since they were made.

    Attributes:
        built: mean distance of the rows built to their centroids, in the search space.
        added: mean distance of the rows in deltas to theirs, or, without deltas, of those merged
            last; 0 without any.
        merged: rows merged last, if `added` is of them; else 0.
        largest_norm: largest norm of a row added.
        imbalance: rows of the largest graph shard as a multiple of the mean, as it was built.
    """

    built: float = 0.0
    added: float = 0.0
    merged: int = 0
    largest_norm: float = 0.0
    imbalance: float = 0.0

    @property
    def is_sound(self) -> bool:
        """Tell whether distances and counts can be so."""
        return all(0 <= value < inf for value in self.model_dump().values())
