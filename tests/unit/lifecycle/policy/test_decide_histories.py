"""Whatever happens to a table, applying what is decided keeps each live row in just one place."""

import math
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from puffin_ann.declaration import parse_declaration, seconds_of
from puffin_ann.lifecycle.policy.decide import decide
from puffin_ann.lifecycle.policy.inputs import Change
from tests.support.indexes.index_model import RATES, ModelIndex

HOUR_MS = 3_600_000


def declared(**changes):
    data = {
        "name": "i",
        "table": "c.n.t",
        "column": "v",
        "shards": 3,
        "refresh": {"min_rows": 4, "max_lag": "1h", "delta_ratio": 0.5},
        "rebuild": {"tombstone_ratio": 0.4},
        **changes,
    }
    return parse_declaration(data, source="test")


class Histories(RuleBasedStateMachine):
    """A table whose rows come, go, move and come back, and its index."""

    @initialize(rows=st.integers(3, 300))
    def start(self, rows):
        self.declaration = declared()
        self.now = HOUR_MS
        self.next_row, self.next_file = rows, 1
        self.live = dict.fromkeys(range(rows), 0)
        self.past = [dict(self.live)]
        self.oldest = 0
        self.index = ModelIndex(3, self.live, self.now)
        self.rows_ever = rows
        self.guessed = False

    def committed(self):
        self.past.append(dict(self.live))
        self.oldest = self.oldest or self.now

    @rule(rows=st.integers(1, 12), minutes=st.sampled_from([0, 0, 45, 75]))
    def append_and_run(self, rows, minutes):
        self.append(rows)
        self.run(minutes, maintenance=False, exact=True)

    @rule(rows=st.integers(1, 12))
    def append(self, rows):
        self.live |= dict.fromkeys(range(self.next_row, self.next_row + rows), self.next_file)
        self.next_row += rows
        self.rows_ever += rows
        self.next_file += 1
        self.committed()

    @rule(data=st.data())
    def delete_by_position(self, data):
        for row in self.some_rows(data):
            del self.live[row]
        self.committed()

    @rule(data=st.data(), deleting=st.booleans())
    def rewrite_files(self, data, deleting):
        files = data.draw(st.sets(st.sampled_from(sorted(set(self.live.values())) or [0])))
        gone = set(self.some_rows(data)) if deleting else set()
        for row, file in list(self.live.items()):
            if file in files:
                if row in gone:
                    del self.live[row]
                else:
                    self.live[row] = self.next_file
        self.next_file += 1
        self.committed()

    @rule(data=st.data())
    def roll_back(self, data):
        self.live = dict(data.draw(st.sampled_from(self.past)))
        self.committed()

    @rule()
    def delete_everything(self):
        self.live = {}
        self.committed()

    @rule(seed=st.integers(0, 1))
    def declare(self, seed):
        self.declaration = declared(seed=seed)

    @rule(cheap=st.booleans())
    def measure_rates(self, cheap):
        self.index.rates = RATES.model_copy(update={"insert": 0.1} if cheap else {})

    @rule(minutes=st.integers(0, 90), maintenance=st.booleans(), exact=st.booleans())
    def run(self, minutes, maintenance, exact):
        self.now += 60_000 * minutes
        change = self.index.change(self.live, self.oldest)
        state = self.index.state(self.fingerprint())
        decision = self.decide(state, change, maintenance)
        if exact and decision.action == "refresh":
            known = self.index.identify(self.live, decision.matches)
            change = Change(**{**vars(change), "identified": known})
            decision = self.decide(state, change, maintenance)
        # Without asking again, absorption goes by a guess of how many rows are new.
        self.guessed |= decision.matches and not exact
        self.check_sums(decision)
        if decision.action == "none":
            self.check_none(change, state, maintenance)
            return
        self.oldest = 0
        if decision.action == "build":
            assert self.live
            self.index.build(self.live, self.now)
            self.built_with = self.declaration.fingerprint()
        else:
            self.index.apply(decision, self.live, exact=exact)
        self.check_covered()
        again = self.index.change(self.live, self.oldest)
        assert again.rows == 0

    def decide(self, state, change, maintenance):
        return decide(state, change, self.declaration, now_ms=self.now, maintenance=maintenance)

    def fingerprint(self):
        return getattr(self, "built_with", declared().fingerprint())

    def check_none(self, change, state, maintenance):
        options = self.declaration.refresh
        lag = self.now - change.oldest_ms if change.rows else 0
        assert change.rows < options.min_rows
        assert lag <= 1000 * seconds_of(options.max_lag)
        if change.live_rows:
            assert state.fingerprint == self.declaration.fingerprint()
        if change.rows or maintenance:  # what is due in an unchanged table waits for either
            deltas, graphs = (sum(s.live for s in kind) for kind in (state.deltas, state.graphs))
            assert deltas <= options.delta_ratio * graphs or not change.live_rows

    def check_sums(self, decision):
        shards, delta = decision.shards, decision.delta
        for name in ("bytes_written", "seconds"):
            parts = sum(getattr(shard, name) for shard in shards)
            parts += getattr(delta, name) if delta else 0
            parts += decision.other_bytes if name == "bytes_written" else decision.other_seconds
            assert getattr(decision, name) == pytest.approx(parts)
        assert decision.bytes_copied == sum(shard.bytes_copied for shard in shards)
        if decision.action == "none":
            assert decision.bytes_written == decision.seconds == 0
        assert min([0.0, *(shard.seconds for shard in shards)]) == 0.0
        assert all(shard.rows >= 0 and shard.bytes_written >= 0 for shard in shards)

    def check_covered(self):
        answered = self.index.answered()
        assert len(answered) == len(set(answered))
        assert set(answered) == set(self.live.items())

    @precondition(lambda self: hasattr(self, "index"))
    @invariant()
    def no_row_is_answered_twice_or_after_its_death(self):
        answered = self.index.answered()
        assert len({row for row, _ in answered}) == len(answered)
        assert set(answered) <= self.index.covered

    @precondition(lambda self: hasattr(self, "index") and not self.guessed)
    @invariant()
    def deltas_stay_few(self):
        sizes = sorted(s.stored for s in self.index.shards.values() if s.kind == "delta")
        assert len(sizes) <= math.log2(max(1, self.rows_ever)) + 2
        assert all(2 * small < large for small, large in pairwise(sizes))

    def some_rows(self, data):
        return data.draw(st.sets(st.sampled_from(sorted(self.live)))) if self.live else []


Histories.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestHistories = Histories.TestCase
