"""An index as sets of rows, to which decisions are applied literally, for property tests.

A row is a number, its identity; where it stands in the table is a file. A shard never forgets a row
but by what a decision says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from puffin_ann.lifecycle.policy.decision import Decision, Drift, Rates, ShardAction
from puffin_ann.lifecycle.policy.inputs import Change, Identified, IndexState, ShardState

RATES = Rates(read=1e6, insert=1e6, build=10.0, copy_bytes=1e9)
"""Building is dear here, so that histories are refreshed."""


@dataclass
class Shard:
    """Rows by the file they are said to stand in; those in `deleted` are tombstoned."""

    kind: str
    rows: dict[int, int] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    stored: int = 0

    @property
    def live(self) -> dict[int, int]:
        return {row: file for row, file in self.rows.items() if row not in self.deleted}


class ModelIndex:
    """A published index over a table of rows in files."""

    def __init__(self, shards: int, live: Mapping[int, int], now_ms: int):
        self.count = shards
        self.rates = RATES
        self.build(live, now_ms)

    def build(self, live: Mapping[int, int], now_ms: int) -> None:
        self.shards = {number: Shard("graph") for number in range(self.count)}
        for row, file in live.items():
            self.home(row).rows[row] = file
        for shard in self.shards.values():
            shard.stored = len(shard.rows)
        self.cover(live)

    def home(self, row: int) -> Shard:
        return self.shards[row % self.count]

    def cover(self, live: Mapping[int, int]) -> None:
        self.covered = set(live.items())
        self.files = set(live.values())

    def state(self, fingerprint: str, rows_bytes: int = 10) -> IndexState:
        shards = tuple(
            ShardState(
                number,
                shard.kind,
                shard.stored,
                shard.stored - len(shard.live),
                50 * shard.stored,
                rows_bytes * shard.stored,
                4 if shard.deleted else 0,
            )
            for number, shard in self.shards.items()
        )
        return IndexState(
            algorithm="vamana",
            metric="l2",
            dimension=8,
            norm_bound=0.0,
            fingerprint=fingerprint,
            base_snapshot_id=1,
            rows=sum(shard.live for shard in shards),
            shards=shards,
            other_bytes=100,
            rates=self.rates,
            drift=Drift(imbalance=1e9),
        )

    def change(self, live: Mapping[int, int], oldest_ms: int) -> Change:
        added, removed = set(live.items()) - self.covered, self.covered - set(live.items())
        there = set(live.values())
        return Change(
            snapshot_id=2,
            live_rows=len(live),
            rows_added=len(added),
            rows_gone=len(removed),
            rows_restored=sum(file in self.files for _, file in added),
            rows_left_behind=sum(file not in there for _, file in removed),
            oldest_ms=oldest_ms if added or removed else 0,
        )

    def identify(self, live: Mapping[int, int], matches: bool) -> Identified:
        """Say what became of each row, as a run does that reads them."""
        added = dict(set(live.items()) - self.covered)
        relocated: set[int] = set()
        deleted: dict[int, int] = {}
        for number, shard in self.shards.items():
            for row, file in shard.rows.items():
                if live.get(row) == file and row not in shard.deleted:
                    continue
                if matches and row in added and row not in relocated:
                    relocated.add(row)
                elif row not in shard.deleted:
                    deleted[number] = deleted.get(number, 0) + 1
        return Identified(len(relocated), len(added) - len(relocated), deleted)

    def apply(self, decision: Decision, live: Mapping[int, int], *, exact: bool) -> None:
        new = dict(set(live.items()) - self.covered)
        actions = {shard.shard_id: shard for shard in decision.shards}
        assert actions.keys() == self.shards.keys()
        if decision.matches:
            new = self._remap(actions, new)
        self._mask(actions, live)
        if decision.merges:
            assert decision.delta is None
            self._merge(actions, new)
        else:
            self._add_delta(decision, new)
        for number, action in actions.items():
            if action.action == "rebuild":
                shard = self.shards[number]
                assert shard.live or not exact, "nothing can be built of no row"
                if not shard.live:
                    continue
                shard.rows, shard.deleted = shard.live, set()
                shard.stored = len(shard.rows)
        self.cover(live)

    def _remap(self, actions: Mapping[int, ShardAction], added: dict[int, int]) -> dict[int, int]:
        left = dict(added)
        for number, shard in self.shards.items():
            for row, file in shard.rows.items():
                is_removed = row in shard.deleted or (row, file) in self.covered
                if row in left and is_removed:
                    assert actions[number].action in ("remap", "merge", "rebuild")
                    shard.rows[row] = left.pop(row)
                    shard.deleted.discard(row)
        return left

    def _mask(self, actions: Mapping[int, ShardAction], live: Mapping[int, int]) -> None:
        for number, shard in self.shards.items():
            newly_deleted = {row for row, file in shard.live.items() if live.get(row) != file}
            assert not newly_deleted or actions[number].action != "none"
            shard.deleted |= newly_deleted

    def _merge(self, actions: Mapping[int, ShardAction], new: Mapping[int, int]) -> None:
        added = dict(new)
        for number in [number for number, one in self.shards.items() if one.kind == "delta"]:
            assert actions[number].action == "merge"
            added |= self.shards.pop(number).live
        for row, file in added.items():
            assert actions[row % self.count].action in ("merge", "rebuild")
            shard = self.home(row)
            # A deleted row of the same identity keeps its ordinal beside the new one.
            shard.stored += 1
            shard.rows[row] = file
            shard.deleted.discard(row)

    def _add_delta(self, decision: Decision, new: Mapping[int, int]) -> None:
        if decision.delta is None:
            assert not new
            return
        rows = dict(new)
        for number in decision.delta.absorbed:
            rows |= self.shards.pop(number).live
        if rows:
            assert decision.delta.shard_id not in self.shards
            self.shards[decision.delta.shard_id] = Shard("delta", rows, set(), len(rows))

    def answered(self) -> list[tuple[int, int]]:
        return [place for shard in self.shards.values() for place in shard.live.items()]
