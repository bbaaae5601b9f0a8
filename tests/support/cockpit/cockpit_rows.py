"""What an Airflow knows of indexes, put into its database: DAGs, runs, documents.

Run as a program in the environment of that Airflow:
`python -m tests.support.cockpit.cockpit_rows COUNT`.
"""

import math
import sys
import time
from datetime import UTC, datetime, timedelta

from airflow.models import DagModel, DagRun, TaskInstance, Variable
from airflow.models.dag import DagTag
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.types import DagRunType
from pyiceberg.catalog import load_catalog
from sqlalchemy import delete, insert, update

from puffin_ann.airflow.dag_ids import REASON, WHY_FAILED
from puffin_ann.airflow.state.collect import look_at
from puffin_ann.airflow.state.document import Limits, Point, StateDocument
from puffin_ann.airflow.state.store import PREFIX, key_of
from puffin_ann.lifecycle.documents.run_record import RunRecord
from puffin_ann.lifecycle.report.figures import Figures
from puffin_ann.lifecycle.report.overview import (
    FindingOverview,
    IndexOverview,
    NextRun,
    ShardOverview,
    VersionOverview,
)
from tests.support.cockpit.cockpit import REAL
from tests.support.cockpit.cockpit_index import declared, make

NOW_MS = time.time_ns() // 1_000_000
HOUR_MS = 3_600_000
SILENT = "there was no answer within 30 s"
EVIL = "<script>document.title='run'</script>"
TRIES_EVIL = 100
"""One of many indexes whose problem is no text to be shown as it is: no picture has so many."""

FEW = 30
"""Of more indexes than these every fourth has a silent catalog."""

BUNDLE = "dags-folder"
KINDS = ("build", "refresh", "maintain", "evaluate")
INVALID = "invoices"


def overview(index: str, table: str, rows: int, *, lag: float = 0.0, coverage: float = 1.0):
    size = rows * 100 * 4
    shards = [
        ShardOverview(
            shard_id=number,
            kind="graph" if number < 4 else "delta",
            rows=rows // 5 if number < 4 else rows // 40 // (number - 3),
            tombstones=rows // 90 * number if number < 4 else 0,
            bytes=size // 5 if number < 4 else size // 40 // (number - 3),
            at_ms=NOW_MS - (30 - 5 * number) * HOUR_MS,
        )
        for number in range(6)
    ]
    return IndexOverview(
        figures=Figures(
            index=index,
            table=table,
            run_id="scheduled__1",
            snapshot_id=7,
            base_snapshot_id=6,
            coverage=coverage,
            lag_seconds=lag,
            recall=0.972,
            recall_target=0.95,
            tombstone_ratio=0.031,
            rows=rows,
            bytes=size,
            seconds=84.0,
        ),
        algorithm="vamana",
        metric="cosine",
        dimension=100,
        column="embedding",
        key="word",
        rows_to_scan=round(rows * (1 - coverage)),
        rows_masked=12,
        tombstones=rows // 15,
        recall_range=(0.961, 0.983),
        all_bytes=size * 2,
        is_changed=False,
        skipped={"null": 3, "not finite": 1},
        shards=tuple(shards),
        shard_count=len(shards),
        versions=(
            VersionOverview(
                run_id="scheduled__1",
                at_ms=NOW_MS - HOUR_MS,
                rows=rows,
                coverage=coverage,
                bytes_written=size // 80,
            ),
            VersionOverview(
                run_id="manual__2",
                at_ms=NOW_MS - 26 * HOUR_MS,
                rows=rows - 900,
                coverage=0.981,
                bytes_written=size,
            ),
        ),
        runs=(RunRecord(run_id="scheduled__1", action="refresh", at_ms=NOW_MS - HOUR_MS),),
        evaluated_recall=0.968,
        next_run=NextRun(
            action="refresh",
            reason="1,204 rows added and 12 removed: they become a delta and tombstones",
            bytes_written=481_600,
            bytes_copied=0,
            seconds=3.4,
        ),
        findings=(
            FindingOverview(
                kind="expiring",
                what="the next expiry of snapshots takes the file's last registration",
                remedy="the next run of its maintenance DAG",
                is_problem=True,
            ),
        ),
        removable=2,
        removable_bytes=48_200_000,
        declaration={"table": table, "column": "embedding", "algorithm": "vamana", "shards": 4},
    )


def document(index: str, outcome: str = "found", problem: str = "", **given):
    table = given.pop("table", f"demo.glove.{index}")
    rows = given.pop("rows", 1_200_000)
    has_figures = outcome in ("found", "unreachable")
    found = overview(index, table, rows, **given) if has_figures else None
    trend = tuple(
        Point(
            at_ms=NOW_MS - (48 - n) * 900_000,
            run_id=f"r{n}",
            recall=0.972 - 0.004 * math.sin(n / 5) ** 2 - n * 0.00008,
            lag_seconds=(n % 12) * 140.0 + given.get("lag", 0.0) * n / 48,
            coverage=1 - (n % 12) * 0.0004,
            bytes=round(rows * 700 * (1 + n / 200)),
        )
        for n in range(48)
    )
    return StateDocument(
        index=index,
        table=table,
        outcome=outcome,
        looked_ms=NOW_MS - 240_000,
        problem=problem,
        limits=Limits(recall_target=0.95, max_lag_seconds=3600, min_coverage=0.99),
        overview=found,
        found_ms=NOW_MS - (240_000 if outcome == "found" else 6 * HOUR_MS) if found else None,
        trend=trend if found else (),
    )


def show(session, dag_id: str) -> None:
    session.execute(update(DagModel).where(DagModel.dag_id == dag_id).values(is_stale=False))


def add_dag(session, kind: str, index: str, next_hours: float | None = None) -> str:
    dag_id = f"ann_{kind}_{index}"
    if session.get(DagModel, dag_id) is None:
        due = datetime.now(UTC) + timedelta(hours=next_hours) if next_hours else None
        session.add(
            DagModel(
                dag_id=dag_id,
                bundle_name=BUNDLE,
                is_paused=False,
                is_stale=False,
                fileloc="/dags/vector_indexes.py",
                timetable_type="x",
                next_dagrun_create_after=due,
            )
        )
        for tag in ("puffin-ann", kind, f"demo.glove.{index}"):
            session.add(DagTag(name=tag, dag_id=dag_id))
        session.flush()
    show(session, dag_id)
    return dag_id


STAGES = {
    "refresh": (
        ("plan", 0.04),
        ("read_changes", 0.45),
        ("apply_changes", 0.41),
        ("publish", 0.07),
        ("report", 0.03),
    ),
    "maintain": (
        ("guard", 0.02),
        ("plan", 0.02),
        ("read_changes", 0.16),
        ("apply_changes", 0.68),
        ("publish", 0.05),
        ("report", 0.01),
        ("clean", 0.06),
    ),
}
"""Tasks of runs that have ended, each with its share of the time."""

FAILS = "apply_changes"
"""The task that fails of runs that do."""

REASONS = {
    "ann_refresh_words": "refresh: 1,204 rows added and 12 removed",
    "ann_maintain_words": "rebuild: 11.0% of the rows of shard 3 are deleted",
}
"""Why a DAG's runs did what they did, as their task `plan` says."""


WHY_IT_FAILED = (
    "index 'reviews': recall@10 is 0.9312, under the declared recall_target of 0.95; build it again"
)


def add_run(session, dag_id: str, state: str, minutes: int, took: int = 90) -> None:
    began = datetime.now(UTC) - timedelta(minutes=minutes)
    run = DagRun(
        dag_id=dag_id,
        run_id=f"scheduled__{began.isoformat()}",
        run_type=DagRunType.SCHEDULED,
        state=state,
        start_date=began,
        run_after=began,
    )
    if state in ("success", "failed"):
        run.end_date = began + timedelta(seconds=took)
    session.add(run)
    session.flush()
    for task_id, part in STAGES.get(dag_id.split("_")[1], ()) if run.end_date else ():
        ended = began + timedelta(seconds=part * took)
        is_failed = state == "failed" and task_id == FAILS
        values = {
            "task_id": task_id,
            "dag_id": dag_id,
            "run_id": run.run_id,
            "pool": "default_pool",
            "state": "failed" if is_failed else "success",
            "start_date": began,
            "end_date": ended,
            "duration": part * took,
        }
        session.execute(insert(TaskInstance.__table__).values(values))
        if is_failed:
            add_xcom(session, run, task_id, WHY_FAILED, WHY_IT_FAILED)
            break
        began = ended
    if run.end_date and (reason := REASONS.get(dag_id)):
        add_xcom(session, run, "plan", REASON, reason)


def add_xcom(session, run: DagRun, task_id: str, key: str, value: str) -> None:
    told = {"key": key, "value": value, "task_id": task_id, "dag_run_id": run.id}
    values = {"dag_id": run.dag_id, "run_id": run.run_id, **told}
    session.execute(insert(XComModel.__table__).values(values))


def seed(session, count: int) -> None:
    """Let it know so many indexes, the first of which are one of each state; no more are there."""
    session.execute(delete(Variable).where(Variable.key.startswith(PREFIX)))
    session.execute(delete(XComModel))
    session.execute(delete(TaskInstance))
    session.execute(delete(DagRun))
    # What is stale is not shown: that is all DAGs but those which are added, or found, below.
    session.execute(update(DagModel).values(is_stale=True))
    made = documents()[:count]
    for index, known in made:
        if known is not None and known.outcome == "orphaned":
            show(session, "ann_collect_vector_indexes")
        elif index == INVALID:
            show(session, f"ann_build_{INVALID}")
        else:
            due = 2.5 + len(index) if known is not None and known.outcome == "found" else None
            for kind in KINDS:
                add_dag(session, kind, index, due if kind == "maintain" else None)
        if known is not None:
            key = key_of(known.table, known.index)
            session.add(Variable(key=key, val=known.as_text()))
    indexes = {index for index, _ in made}
    for dag_id, *run in RUNS:
        if dag_id.split("_", 2)[2] in indexes:
            add_run(session, dag_id, *run)
    for number in range(count - len(made)):
        index = f"team_{number % 9}_index_{number:03}"
        for kind in KINDS:
            add_run(session, add_dag(session, kind, index), "success", 60 + number)
        silent = number % 4 == 0 and count > FEW
        problem = EVIL if number == TRIES_EVIL else SILENT
        told = document(index, *(("unreachable", problem) if silent else ("found",)))
        session.add(Variable(key=key_of(told.table, index), val=told.as_text()))


def documents() -> list[tuple[str, StateDocument | None]]:
    """Return one index of each state; the declaration that is not valid has no document."""
    orphan = StateDocument(
        index="words_2019",
        table="demo.glove.words",
        outcome="orphaned",
        looked_ms=NOW_MS - 240_000,
        problem="it is published, and no declaration here names it",
    )
    real = look_at(declared())
    return [
        ("words", document("words", lag=1260, coverage=0.9968)),
        ("articles", document("articles", rows=8_400_000)),
        ("reviews", document("reviews", lag=9400, coverage=0.962, rows=320_000)),
        ("products", document("products", "unreachable", SILENT, rows=55_000)),
        ("images", document("images", rows=2_100_000)),
        ("queries", document("queries", "not_built")),
        ("stories", document("stories", lag=9400, coverage=0.962, rows=320_000)),
        ("pictures", document("pictures", rows=61_000)),
        ("titles", document("titles", "problem", "column headline is not there; name another")),
        (REAL, real.after(None)),
        ("words_2019", orphan),
        (INVALID, None),
    ]


RUNS: tuple[tuple, ...] = (
    ("ann_maintain_words", "success", 300, 412),
    ("ann_refresh_words", "success", 22),
    ("ann_refresh_articles", "success", 14),
    ("ann_refresh_reviews", "failed", 31),
    ("ann_build_images", "running", 3),
    ("ann_refresh_pictures", "queued", 1),
)
"""The runs of the first indexes: the DAG, the state, minutes since it began, and seconds."""


if __name__ == "__main__":
    if not load_catalog("demo").namespace_exists("real"):
        make()
    with create_session() as opened:
        seed(opened, int(sys.argv[1]))
