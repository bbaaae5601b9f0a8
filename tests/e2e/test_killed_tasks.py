"""A running Airflow whose tasks, workers and Spark jobs are killed publishes every change once.

The tests are one life of one table, in this order: it is refreshed, then maintained, then cleaned.
"""

from collections.abc import Iterator

import pytest

from puffin_ann.search.version.versions import require_versions
from tests.support.airflow.airflow_server import LocalAirflow, wait_until
from tests.support.airflow.airflow_stage import free_port
from tests.support.airflow.killed_attempts import Kind, is_alive
from tests.support.airflow.killed_runs import (
    INDEX,
    ROWS,
    WEIGHTY,
    KilledRuns,
    Kills,
    RunKind,
    When,
    at_every_moment,
    dag_of,
    in_turn,
)
from tests.support.airflow.watched_table import SECONDS, WatchedTable
from tests.support.lifecycle import crashing_runs

pytestmark = pytest.mark.long


def alone(kill: Kind, number: int) -> Kills:
    """What lives on stores the outcome of its stage, so that this has one moment in each run."""
    kills = in_turn("refresh", kill, number)
    return kills if number == 0 else {task: kills[task] for task in WEIGHTY}


REFRESHES: dict[str, Kills] = {
    kill: in_turn("refresh", kill, number) | dict.fromkeys(WEIGHTY, at_every_moment(kill))
    for number, kill in enumerate(("job", "task", "worker"))
} | {
    f"{kill} {number}": alone(kill, number)
    for kill in ("task alone", "worker alone")
    for number in range(3)
}
MAINTENANCES: dict[str, Kills] = {
    "jobs and tasks": in_turn("maintain", "task", 0)
    | dict.fromkeys(WEIGHTY, at_every_moment("job", "task")),
    "workers": in_turn("maintain", "worker", 1),
}

RETRIES = 2
"""How often a task is tried again where nobody says otherwise."""

KEPT = 2
MORE_DECLARED = f"retention: {{versions: {KEPT}, grace: 0s}}\n"
"""So that the clean-up of every maintenance has something to remove."""

VARIABLES = {
    # A worker that was killed is missed after some seconds, not minutes.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "10",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "1",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
}
POLICY = """
from datetime import timedelta

def task_policy(task):
    task.retry_delay, task.retry_exponential_backoff = timedelta(seconds=1), False
    task.retries = 6
    if task.task_id == "lease":
        task.poke_interval = 1
"""
"""What the people who run an Airflow may have it do with tasks; some of these die three times."""

CLEAN = """
from puffin_ann.declaration import load_declarations
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.settings import settings
declared = load_declarations(*settings().declarations_dir)
clean("demo.glove.watched", declared, grace="0s", at_ms=10**15)
"""

OVERTAKE = """
import sys, time
from pathlib import Path
from puffin_ann.declaration import load_declarations
from puffin_ann.lifecycle.runtime import leases
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.settings import settings
(declared,) = load_declarations(*settings().declarations_dir)
with leases.publishing(declared.table, f"{declared.name}/early", "overtake"):
    while not Path(sys.argv[1]).exists():
        time.sleep(0.1)
    print(refresh_in_process(declared, run_id="early", force=True))
"""
"""Publishes without the index's lease, which it may do who took its holder for dead; whoever wants
to publish the plan that stands at the place it is told has to wait until it has done so."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Iterator[KilledRuns]:
    """One refresh that nobody kills has ended."""
    server = LocalAirflow(tmp_path_factory.mktemp("killed"), free_port())
    server.variables |= VARIABLES
    indexes = tmp_path_factory.mktemp("indexes")
    made = KilledRuns(
        WatchedTable.made(server, indexes, INDEX, rows=ROWS, shards=2, more=MORE_DECLARED)
    )
    policies = server.local / "airflow" / "config"
    policies.mkdir(parents=True)
    (policies / "airflow_local_settings.py").write_text(POLICY)
    try:
        server.up()
        wait_until(lambda: made.watched.states("refresh", INDEX), SECONDS)
        wait_until(made.watched.quiet, SECONDS)
        timed(made, "refresh")
        yield made
    finally:
        server.command("down")


@pytest.fixture(scope="module")
def maintained(killed) -> KilledRuns:
    """Nobody watches the table any more; one maintenance that nobody kills has ended."""
    killed.watched.stop_watching(INDEX)
    killed.wear()
    timed(killed, "maintain")
    return killed


def timed(killed: KilledRuns, kind: RunKind) -> None:
    """Have a run that nobody kills."""
    run_id = killed.begin(kind)
    killed.time(kind, run_id)
    killed.end(kind, run_id)
    assert set(killed.tried(kind, run_id).values()) <= {0, 1}


def kill_tasks(killed: KilledRuns, kind: RunKind, kills: Kills) -> None:
    """Have a run of which tasks are killed; it publishes once, and searches go on."""
    before = killed.watched.published()
    hit: list[tuple[str, Kind, When]] = []
    missed: list[tuple[str, Kind, When]] = []
    with crashing_runs.searching(killed.search) as searches:
        run_id = killed.begin(kind)
        for task, ways in kills.items():
            for kill, when in ways:
                was_hit = killed.kill_tasks((kind, run_id), task, kill, when)
                (hit if was_hit else missed).append((task, kill, when))
        killed.end(kind, run_id)
    assert killed.watched.published() - before == 1
    assert searches[0] > 1
    tried = killed.tried(kind, run_id)
    print(f"killed were {hit}, not {missed}, tried {tried}")
    assert {task for task, _, _ in missed}.isdisjoint(WEIGHTY), "each is met at its moments"
    # Short ones may end before they are seen; one may have said that it is done when it is killed.
    again = {task for task, _, _ in hit if tried[task] > 1}
    assert len(again) >= len(kills) - len(kills) // 3
    assert all(tried[task] <= len(ways) + RETRIES for task, ways in kills.items()), "held up"


@pytest.mark.parametrize("name", REFRESHES)
def test_a_refresh_of_which_tasks_are_killed_publishes_once(killed, name):
    kill_tasks(killed, "refresh", REFRESHES[name])


def test_a_refresh_that_is_overtaken_is_followed_by_another_that_plans_anew(killed):
    before = killed.watched.published()
    run_id = killed.begin("refresh")
    killed.watched.program("-c", OVERTAKE, str(killed.staged("refresh", run_id, "plan")))
    again = f"again__{run_id}"
    wait_until(lambda: killed.server.runs(dag_of("refresh"))[-1]["dag_run_id"] == again, SECONDS)
    for name in (run_id, again):
        killed.end("refresh", name)
    assert killed.watched.published() - before == 1, "the other run had nothing left to do"
    assert not killed.staged("refresh", run_id, "plan").exists()


@pytest.mark.parametrize("name", MAINTENANCES)
def test_a_maintenance_of_which_every_task_is_killed_publishes_once(maintained, name):
    worn = maintained.wear()
    kill_tasks(maintained, "maintain", MAINTENANCES[name])
    routing = require_versions(maintained.watched.table, INDEX)[0].routing
    assert {shard.kind for shard in routing.shards} == {"graph"}, "the delta is merged"
    rebuilt = {shard.shard_id: shard.tombstones for shard in routing.shards}
    assert rebuilt[worn] == 0
    registered = {entry.statistics_path for entry in maintained.watched.table.metadata.statistics}
    assert len(registered) == KEPT, "superseded versions are gone"


def test_what_outlived_its_task_ends_and_clean_up_leaves_nothing(killed):
    wait_until(lambda: not any(map(is_alive, killed.outlived)), SECONDS)
    assert killed.watched.held_by(INDEX) == ""
    killed.watched.program("-c", CLEAN)
    staged = [path.name for path in killed.metadata.glob("_ann-staging/**/*") if path.is_file()]
    assert [name for name in staged if not name.startswith("_lease-")] == []
    registered = {entry.statistics_path for entry in killed.watched.table.metadata.statistics}
    assert {f"file://{path}" for path in killed.metadata.glob("ann-*.puffin")} == registered
    assert killed.watched.covers()
