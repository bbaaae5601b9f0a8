"""Indexes of two shards, and changes of their tables, as a refresh is decided on."""

from puffin_ann.declaration import parse_declaration
from puffin_ann.lifecycle.policy.inputs import Change, IndexState, ShardState

HOUR_MS = 3_600_000
NOW = 10 * HOUR_MS


def declared(**changes):
    data = {"name": "i", "table": "c.n.t", "column": "v", "shards": 2, **changes}
    return parse_declaration(data, source="test")


def graph(number=0, rows=50_000, tombstones=0):
    return ShardState(number, "graph", rows, tombstones, rows * 600, rows * 28)


def delta(number, rows, tombstones=0):
    return ShardState(number, "delta", rows, tombstones, rows * 404, rows * 28)


def state(*shards, **changes):
    given_shards = shards or (graph(0), graph(1))
    fields = {
        "algorithm": "vamana",
        "metric": "l2",
        "dimension": 100,
        "norm_bound": 0.0,
        "fingerprint": declared().fingerprint(),
        "declaration": declared().model_dump_json(),
        "base_snapshot_id": 7,
        "rows": sum(given_shard.live for given_shard in given_shards),
        "shards": given_shards,
        "other_bytes": 10_000,
        **changes,
    }
    return IndexState(**fields)


def change(*, live=100_000, age_ms=0, **changes):
    return Change(snapshot_id=8, live_rows=live, oldest_ms=NOW - age_ms, **changes)
