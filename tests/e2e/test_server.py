"""`make up` and `make down`, on a folder and a port of their own, and a table that is followed."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import quote

import psutil
import pytest

from puffin_ann.errors import IndexNotFoundError
from tests.support.airflow.airflow_server import LocalAirflow, wait_until
from tests.support.airflow.airflow_stage import free_port
from tests.support.airflow.watched_table import MINUTE, SECONDS, WatchedTable, words
from tests.support.paths import ROOT

DAG = "ann_build_glove_words"
ROWS, MORE = 1500, 40


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> Iterator[WatchedTable]:
    server = LocalAirflow(tmp_path_factory.mktemp("server"), free_port())
    declarations = tmp_path_factory.mktemp("indexes")
    asks = f"build: {{approve_above: {{rows: {ROWS}}}}}\n"
    made = WatchedTable.made(server, declarations, "followed", rows=ROWS, more=asks)
    # Nothing is to run by itself here, so that what a person asks for is all there is.
    declared = (ROOT / "include" / "indexes" / "glove_words.yaml").read_text()
    by_hand = "refresh: {watch: false}\nmaintain: {schedule: null}\nevaluate: {schedule: null}\n"
    (declarations / "glove_words.yaml").write_text(declared + by_hand)
    expires = f"build: {{approve_above: {{rows: {ROWS // 2}}}, approval_expires: 10s}}\n"
    same = "table: demo.glove.watched\ncolumn: embedding\nalgorithm: ivf_pq\n"
    (declarations / "expiring.yaml").write_text(same + expires + by_hand)
    try:
        server.up()
        wait_until(lambda: server.request("GET", f"/api/v2/dags/{DAG}")[0] == 200)
        yield made
    finally:
        server.command("down")


@pytest.fixture(scope="module")
def airflow(watched) -> LocalAirflow:
    return watched.server


def processes_of(airflow: LocalAirflow) -> list[psutil.Process]:
    """Return the processes whose state lies in the folder, found by what they have open.

    Without this one, which reads the table.
    """
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            files = [file.path for file in process.open_files()]
            home = process.environ().get("AIRFLOW_HOME", "")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if any(path.startswith(str(airflow.local)) for path in [*files, home]):
            found.append(process)
    return found


def parts_of(airflow: LocalAirflow) -> set[int]:
    """Return the parts that were started; each leads a session, and children come and go."""
    found = {process.pid for process in processes_of(airflow)}
    return {pid for pid in found if psutil.pid_exists(pid) and os.getsid(pid) == pid}


def test_up_prints_the_address_and_the_login(airflow):
    assert airflow.address in airflow.printed
    assert airflow.token
    assert "make down" in airflow.printed


def test_every_part_is_healthy(airflow):
    status, health = airflow.request("GET", "/api/v2/monitor/health")
    assert status == 200
    assert {component["status"] for component in health.values()} == {"healthy"}


def test_nothing_listens_beyond_loopback(airflow):
    listening = {
        connection.laddr.ip
        for process in processes_of(airflow)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_who_has_not_logged_in_sees_nothing(airflow):
    stranger = LocalAirflow(airflow.local, airflow.port)
    assert stranger.request("GET", "/api/v2/dags")[0] == 401
    stranger.token = "x.y.z"
    assert stranger.request("GET", "/api/v2/dags")[0] in (401, 403)


def test_the_dags_are_there_without_an_import_error(airflow):
    assert airflow.request("GET", "/api/v2/importErrors")[1]["total_entries"] == 0
    _, dags = airflow.request("GET", "/api/v2/dags")
    listed = {dag["dag_id"]: dag for dag in dags["dags"]}
    assert DAG in listed
    assert listed[DAG]["is_paused"] is False


def test_the_form_shows_what_is_declared_with_its_bounds(airflow):
    _, details = airflow.request("GET", f"/api/v2/dags/{DAG}/details")
    shards = details["params"]["shards"]
    assert shards["value"] == 2
    assert (shards["schema"]["minimum"], shards["schema"]["maximum"]) == (1, 10_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shards", 0),
        ("recall_target", 2),
        ("R", "many"),
        ("alpha", 0.5),
        ("beam", "bogus"),
        ("force", "yes"),
    ],
)
def test_a_bad_value_in_the_form_is_refused_by_name_and_runs_nothing(airflow, name, value):
    status, answer = airflow.trigger(DAG, **{name: value})
    assert 400 <= status < 500
    assert name in json.dumps(answer)
    assert airflow.request("GET", f"/api/v2/dags/{DAG}/dagRuns")[1]["total_entries"] == 0


def test_the_page_of_indexes_is_for_those_who_logged_in(airflow):
    stranger = LocalAirflow(airflow.local, airflow.port)
    for token in ("", "x.y.z"):
        stranger.token = token
        status, text, _ = stranger.page("/puffin-ann/")
        assert status in (401, 403)
        assert "glove" not in text


def test_the_page_of_indexes_shows_those_declared_and_loads_nothing(airflow):
    status, text, headers = airflow.page("/puffin-ann/")
    assert status == 200
    assert "glove_words" in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'self'" in headers["Content-Security-Policy"]


def test_the_page_of_indexes_stands_in_the_navigation(airflow):
    _, answer = airflow.request("GET", "/api/v2/plugins")
    views = [view for plugin in answer["plugins"] for view in plugin["external_views"]]
    (view,) = [view for view in views if view["name"] == "Vector indexes"]
    assert airflow.page("/" + view["href"].lstrip("/"))[0] == 200
    assert airflow.request("GET", "/api/v2/plugins/importErrors")[1]["total_entries"] == 0


def test_a_second_up_starts_nothing_and_says_the_same(airflow):
    before = parts_of(airflow)
    again = airflow.command("up", PORT=str(free_port()))
    assert again.returncode == 0, again.stderr
    assert again.stdout == airflow.printed
    assert parts_of(airflow) == before


def test_a_dag_that_is_paused_is_told(airflow):
    for is_paused in (True, False):
        airflow.request("PATCH", f"/api/v2/dags/{DAG}", is_paused=is_paused)
        told = airflow.command("up").stdout
        assert (f"paused:         {DAG};" in told) == is_paused


def test_a_port_that_is_taken_is_refused_by_number(airflow, tmp_path):
    other = LocalAirflow(tmp_path, airflow.port)
    refused = other.command("up")
    assert refused.returncode != 0
    assert str(airflow.port) in refused.stderr
    assert "PORT=" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert other.command("down").stdout == "Airflow is not running\n"


@pytest.mark.parametrize("port", ["0", "http", "-1", "65536", ""])
def test_a_port_that_is_no_port_is_refused(tmp_path, port):
    refused = LocalAirflow(tmp_path, 0).command("up", PORT=port)
    assert refused.returncode != 0
    assert "PORT=" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_appended_rows_are_found_through_the_index_without_any_hand(watched):
    # The state that is there at the start is an event, too; nothing is due for it.
    wait_until(lambda: watched.states("refresh", "followed") == ["success"], SECONDS)
    watched.append(ROWS, MORE)
    appended = datetime.now(UTC)
    watched.settle()
    _, run = watched.server.runs("ann_refresh_followed")
    started = datetime.fromisoformat(run["start_date"])
    assert (started - appended).total_seconds() < MINUTE
    assert watched.nearest("followed", ROWS, MORE) == words(ROWS, MORE)


@pytest.mark.long
def test_a_build_that_nobody_approves_in_time_is_not_done(watched):
    server, dag = watched.server, "ann_build_expiring"
    _, run = server.trigger(dag)
    run_id = run["dag_run_id"]
    wait_until(lambda: server.runs(dag)[-1]["state"] in ("success", "failed"), SECONDS, every=1)
    states = {task["task_id"]: task["state"] for task in server.tasks(dag, run_id)}
    assert states["approve"] == "success"
    assert {states[task] for task in ("lease", "plan", "publish")} == {"skipped"}
    assert server.runs(dag)[-1]["state"] == "success"
    assert watched.held_by("expiring") == ""
    with pytest.raises(IndexNotFoundError):
        watched.status("expiring")


@pytest.mark.long
def test_a_costly_build_waits_for_approval_and_holds_up_nothing(watched):
    server, dag = watched.server, "ann_build_followed"
    _, run = server.trigger(dag, force=True)
    run_id = run["dag_run_id"]

    def states() -> dict[str, str]:
        return {task["task_id"]: task["state"] for task in server.tasks(dag, run_id)}

    wait_until(lambda: states().get("approve") in ("awaiting_input", "deferred"), SECONDS)
    assert watched.held_by("followed") == ""
    _, pool = server.request("GET", "/api/v2/pools/default_pool")
    assert pool["occupied_slots"] == 0
    at = f"/api/v2/dags/{dag}/dagRuns/{quote(run_id)}/taskInstances/approve/-1/hitlDetails"
    _, asked = server.request("GET", at)
    assert f"{ROWS + MORE:,} rows, above build.approve_above.rows {ROWS:,}" in asked["body"]

    watched.append(ROWS + MORE, MORE)  # which the index follows meanwhile
    wait_until(watched.covers, SECONDS, every=1)
    found = watched.nearest("followed", ROWS + MORE, MORE, exhaustive=True)
    assert found == words(ROWS + MORE, MORE)
    assert states()["approve"] in ("awaiting_input", "deferred")

    status, answer = server.request("PATCH", at, chosen_options=["Approve"], params_input={})
    assert status == 200, answer
    wait_until(lambda: server.runs(dag)[-1]["state"] in ("success", "failed"), SECONDS, every=1)
    assert server.runs(dag)[-1]["state"] == "success"
    found = watched.status("followed")
    assert (found.vectors, found.rows_to_scan) == (ROWS + 2 * MORE, 0)


def test_down_stops_every_process_even_those_that_lost_their_parent(airflow):
    family = processes_of(airflow)
    assert len(family) > 4
    scheduler = max(family, key=lambda process: len(process.children()))
    scheduler.kill()
    done = airflow.command("down")
    assert done.returncode == 0, done.stderr
    assert processes_of(airflow) == []
    assert [
        process for process in family if process.is_running() and process.status() != "zombie"
    ] == []
    assert airflow.command("down").stdout == "Airflow is not running\n"
