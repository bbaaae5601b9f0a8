"""With a scheduler and a triggerer, an index follows its table without any hand.

The tests are one life of one table, in this order; each is the next thing that happens to it.
"""

import time
import urllib.parse
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from tests.support.airflow.airflow_server import LocalAirflow, wait_until
from tests.support.airflow.airflow_stage import free_port
from tests.support.airflow.watched_table import MINUTE, NAME, SECONDS, WatchedTable, words
from tests.support.servers import iceberg_java, lakes

pytestmark = pytest.mark.long

ROWS, MORE = 1500, 40
GONE, GONE_LATER = 500, 300
INDEXES = ("first", "second")
PARSED_EVERY = "10"
OWN = """
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, task
from puffin_ann.airflow import index_asset
from puffin_ann.airflow.sensors import IcebergIndexStaleSensor, IcebergIndexTombstoneSensor

def go(dag_id):
    return TriggerDagRunOperator(
        task_id="go", trigger_dag_id=dag_id, wait_for_completion=True, deferrable=True,
        poke_interval=2,
    )

with DAG("follow_second", schedule=None):
    stale = IcebergIndexStaleSensor(task_id="wait", index="second", poke_interval=2)
    stale >> go("ann_refresh_second")

with DAG("rebuild_first", schedule=None):
    due = IcebergIndexTombstoneSensor(task_id="wait", index="first", poke_interval=2)
    due >> go("ann_maintain_first")

FIRST = index_asset("demo.glove.watched", "first")

with DAG("after_first", schedule=[FIRST], catchup=False):
    @task
    def use(triggering_asset_events=None):
        return [event.extra["run_id"] for event in triggering_asset_events[FIRST]]

    use()
"""
"""DAGs of a user, who starts them, and has not to look at the table from then on."""


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> Iterator[WatchedTable]:
    server = LocalAirflow(tmp_path_factory.mktemp("following"), free_port())
    server.variables["AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL"] = PARSED_EVERY
    own = tmp_path_factory.mktemp("own")
    (own / "own.py").write_text(OWN)
    server.load_also(own)
    made = WatchedTable.made(server, tmp_path_factory.mktemp("indexes"), *INDEXES, rows=ROWS)
    try:
        server.up()
        # The state that is there at the start is an event, too; nothing is due for it.
        wait_until(lambda: all(made.states("refresh", name) for name in INDEXES), SECONDS)
        wait_until(made.quiet, SECONDS)
        yield made
    finally:
        server.command("down")


@pytest.fixture(scope="module")
def spark(watched, tmp_path_factory):
    """Iceberg's own implementation, on the same catalog."""
    from pyspark.sql import SparkSession

    configuration = {
        **iceberg_java.session_settings(tmp_path_factory.mktemp("spark-warehouse"), 1),
        **lakes.embedded_settings("demo", watched.server.local),
    }
    session = SparkSession.builder.config(map=configuration).getOrCreate()
    yield session
    session.stop()


def ended_since(watched: WatchedTable, kind: str, before: dict[str, int]) -> dict[str, list[dict]]:
    """By index, the runs of a kind that came after those that were counted; all succeeded."""
    found = {name: watched.server.runs(f"ann_{kind}_{name}")[before[name] :] for name in INDEXES}
    for runs in found.values():
        assert [run["state"] for run in runs] == ["success"] * len(runs)
    return found


def counted(watched: WatchedTable, kind: str) -> dict[str, int]:
    return {name: len(watched.states(kind, name)) for name in INDEXES}


def test_the_start_publishes_nothing(watched):
    assert watched.published() == len(INDEXES)
    for name in INDEXES:
        assert watched.states("refresh", name) == ["success"]


def test_appended_rows_are_found_through_both_indexes_and_nothing_runs_after_that(watched):
    before, runs = watched.published(), counted(watched, "refresh")
    watched.append(ROWS, MORE)
    appended = datetime.now(UTC)
    watched.settle()
    for name, found in ended_since(watched, "refresh", runs).items():
        (run,) = found
        started = datetime.fromisoformat(run["start_date"])
        assert (started - appended).total_seconds() < MINUTE
        assert run["run_type"] == "asset_triggered"
        assert watched.nearest(name, ROWS, MORE) == words(ROWS, MORE)
    time.sleep(10)  # several polls: what was published is no event
    assert watched.published() - before == len(INDEXES)
    ended_since(watched, "refresh", {name: count + 1 for name, count in runs.items()})
    assert counted(watched, "refresh") == {name: count + 1 for name, count in runs.items()}
    assert counted(watched, "build") == dict.fromkeys(INDEXES, 0)


def test_a_dag_of_a_user_runs_whenever_an_index_was_published_and_only_then(watched):
    entries = reversed(watched.told("history", NAME, "first")["entries"])
    published = [entry["record"]["run_id"] for entry in entries if entry["trigger"] != "unknown"]
    code, answer = watched.server.request("GET", "/api/v2/assets/events?limit=100")
    assert code == 200, answer
    told = [event["extra"] for event in answer["asset_events"]]
    assert {event["run_id"] for event in told if event.get("index") == "first"} == set(published)
    assert all(event["coverage"] == 1.0 for event in told if "index" in event)

    def runs() -> list[dict]:
        return watched.server.runs("after_first")

    wait_until(lambda: {run["state"] for run in runs()} == {"success"}, SECONDS)
    taken = []
    for run in runs():
        path = f"/api/v2/dags/after_first/dagRuns/{run['dag_run_id']}/taskInstances/use"
        quoted = urllib.parse.quote(f"{path}/xcomEntries/return_value")
        taken += watched.server.request("GET", f"{quoted}?deserialize=true")[1]["value"]
    assert sorted(taken) == sorted(published)


def test_a_manual_run_while_another_is_at_work_waits_for_it_and_is_not_lost(watched):
    before, runs = watched.published(), counted(watched, "refresh")
    watched.append(ROWS + MORE, MORE)
    wait_until(lambda: watched.held_by("first").startswith("refresh/"), SECONDS)
    code, answer = watched.server.trigger("ann_build_first")
    assert code == 200, answer
    watched.settle()
    assert watched.states("build", "first") == ["success"]
    assert all(len(found) == 1 for found in ended_since(watched, "refresh", runs).values())
    assert watched.published() - before == len(INDEXES), "the manual run had nothing left to do"


def test_rows_deleted_by_spark_become_tombstones(watched, spark):
    runs = counted(watched, "refresh")
    spark.sql(f"ALTER TABLE {NAME} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark.sql(f"DELETE FROM {NAME} WHERE id < {GONE}")
    watched.settle()
    found = ended_since(watched, "refresh", runs)
    for name in INDEXES:
        assert found[name], "a refresh ran"
        (now,) = watched.told("status", NAME, name)
        assert (now["vectors"], now["tombstones"]) == (ROWS + 2 * MORE - GONE, GONE)
        assert (now["rows_masked"], now["rows_to_scan"], now["coverage"]) == (0, 0, 1.0)
        assert set(watched.nearest(name, 0, MORE)).isdisjoint(words(0, GONE))


def test_rows_moved_by_sparks_compaction_are_found_in_their_new_places(watched, spark):
    runs = counted(watched, "refresh")
    files = {task.file.file_path for task in watched.table.scan().plan_files()}
    spark.sql(
        "CALL demo.system.rewrite_data_files(table => 'glove.watched', "
        "options => map('rewrite-all', 'true'))"
    )
    watched.settle()
    assert files.isdisjoint(task.file.file_path for task in watched.table.scan().plan_files())
    found = ended_since(watched, "refresh", runs)
    for name in INDEXES:
        assert found[name], "a refresh ran"
        (now,) = watched.told("status", NAME, name)
        # The graph is as it was, deleted rows among it: rows got their new places.
        assert (now["vectors"], now["tombstones"]) == (ROWS + 2 * MORE - GONE, GONE)
        assert (now["rows_masked"], now["rows_to_scan"], now["coverage"]) == (0, 0, 1.0)
        assert watched.nearest(name, GONE, MORE) == words(GONE, MORE)
    assert counted(watched, "build") == {"first": 1, "second": 0}


def test_a_shard_of_many_tombstones_is_rebuilt_when_its_maintenance_window_comes(watched):
    (before,) = watched.told("status", NAME, "first")
    assert before["tombstone_ratio"] > 0.2
    watched.declare("first", window='"* * * * *"')
    wait_until(lambda: watched.status("first").tombstones == 0, SECONDS)
    watched.declare("first")
    wait_until(watched.quiet, SECONDS)
    runs = watched.server.runs("ann_maintain_first")
    assert {run["run_type"] for run in runs} == {"scheduled"}
    assert {run["state"] for run in runs} == {"success"}
    (now,) = watched.told("status", NAME, "first")
    assert (now["vectors"], now["tombstone_ratio"]) == (ROWS + 2 * MORE - GONE, 0.0)
    assert (now["rows_masked"], now["rows_to_scan"], now["coverage"]) == (0, 0, 1.0)
    assert now["bytes"] < before["bytes"], "the vectors of deleted rows are gone"
    assert watched.nearest("first", GONE, MORE) == words(GONE, MORE)
    assert watched.status("second").tombstones == GONE


def test_the_history_shows_every_run(watched):
    code, answer = watched.server.trigger("ann_evaluate_first")
    assert code == 200, answer
    wait_until(lambda: watched.server.runs("ann_evaluate_first")[0]["state"] == "success", SECONDS)
    found = watched.told("history", NAME, "first")
    entries = [(entry["trigger"], entry["record"]) for entry in reversed(found["entries"])]
    assert [(trigger, one["action"]) for trigger, one in entries] == [
        ("unknown", "build"),
        ("asset", "refresh"),
        ("asset", "merge"),
        ("asset", "refresh"),
        ("asset", "refresh"),
        ("schedule", "rebuild"),
        ("manual", "evaluate"),
    ]
    build, added, merged, deleted, compacted, rebuilt, evaluated = (one for _, one in entries)
    alive = ROWS + 2 * MORE - GONE
    assert [one["rows"] for _, one in entries[:4]] == [ROWS, ROWS + MORE, ROWS + 2 * MORE, alive]
    assert [one["rows"] for _, one in entries[4:]] == [alive] * 3
    assert (added["rows_added"], merged["rows_added"], deleted["rows_gone"]) == (MORE, MORE, GONE)
    for run in (build, added, merged, deleted, compacted, rebuilt):
        assert run["bytes_written"] > 0
        assert run["seconds"] > 0
    for run in (added, deleted, compacted):
        assert run["bytes_copied"] > run["bytes_written"], "graphs are copied"
    assert build["recall"] >= 0.8
    assert evaluated["recall"] >= 0.8
    assert (evaluated["seconds"] > 0, evaluated["coverage"]) == (True, 1.0)


def waits_and_succeeds(watched: WatchedTable, dag: str, change: Callable[[], None]) -> None:
    """Start a DAG, change the table while its sensor waits in the triggerer, and see it succeed."""
    code, run = watched.server.trigger(dag)
    assert code == 200, run

    def states() -> dict[str, str]:
        tasks = watched.server.tasks(dag, run["dag_run_id"])
        return {task["task_id"]: task["state"] for task in tasks}

    wait_until(lambda: states().get("wait") == "deferred", SECONDS)
    time.sleep(10)  # several looks at the table, which is as it was
    assert states() == {"wait": "deferred", "go": None}
    change()
    wait_until(lambda: watched.server.runs(dag)[0]["state"] != "running", SECONDS)
    assert states() == {"wait": "success", "go": "success"}


def test_a_dag_of_a_user_refreshes_an_index_that_nobody_watches_once_it_is_stale(watched):
    watched.stop_watching("second")
    runs, first = counted(watched, "refresh"), ROWS + 2 * MORE
    waits_and_succeeds(watched, "follow_second", lambda: watched.append(first, MORE))
    wait_until(watched.quiet, SECONDS)
    (run,) = ended_since(watched, "refresh", runs)["second"]
    assert run["run_type"] == "operator_triggered"
    assert watched.nearest("second", first, MORE) == words(first, MORE)


def test_a_dag_of_a_user_has_a_shard_of_many_tombstones_rebuilt_before_any_window(watched, spark):
    runs = counted(watched, "maintain")
    gone = f"id >= {GONE} AND id < {GONE + GONE_LATER}"
    delete = f"DELETE FROM {NAME} WHERE {gone}"
    waits_and_succeeds(watched, "rebuild_first", lambda: spark.sql(delete))
    wait_until(watched.quiet, SECONDS)
    (run,) = ended_since(watched, "maintain", runs)["first"]
    assert run["run_type"] == "operator_triggered"
    (now,) = watched.told("status", NAME, "first")
    alive = ROWS + 3 * MORE - GONE - GONE_LATER
    assert (now["vectors"], now["tombstones"]) == (alive, 0)
    assert (now["rows_masked"], now["rows_to_scan"], now["coverage"]) == (0, 0, 1.0)


def test_no_part_logged_a_trigger_that_died(watched):
    log = (watched.server.local / "airflow" / "triggerer.log").read_text()
    assert "Trigger exited without sending an event" not in log
    assert "Traceback" not in log
