"""What is told of an index: its figures and lineage, just refreshed; a recall too low."""

from puffin_ann.lifecycle.evaluate.records import Evaluation
from puffin_ann.lifecycle.report.figures import Figures
from puffin_ann.lifecycle.report.lineage import DatasetName, Lineage

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

LOW = Evaluation(
    index="words", table="demo.glove.words", run_id="run", version_run_id="before", at_ms=1,
    snapshot_id=12, base_snapshot_id=11, k=10, queries=200, recall=0.5, low=0.45, high=0.55,
    target=0.95, search_width=64, probe_partitions=3, coverage=1.0, rows=20_000, seconds=9.0,
)  # fmt: skip

LINEAGE = Lineage(
    table=DatasetName(namespace="s3://lake", name="glove/words"),
    alias=DatasetName(namespace="http://catalog:8181", name="glove.words"),
    table_version=11,
    index=DatasetName(namespace="s3://lake", name="glove/words#words"),
    index_version=12,
    rows=20_000,
    bytes=9_000_000,
)
