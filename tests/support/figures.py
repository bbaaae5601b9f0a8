"""The figures of an index that was just refreshed, for tests of those who are told of them."""

from puffin_ann.lifecycle.report.figures import Figures

FIGURES = Figures(
    index="words",
    table="demo.glove.words",
    run_id="run",
    snapshot_id=12,
    base_snapshot_id=11,
    coverage=0.99,
    lag_seconds=3.5,
    recall=0.97,
    recall_target=0.95,
    tombstone_ratio=0.01,
    rows=20_000,
    bytes=9_000_000,
    seconds=42.5,
)
