"""`make compose-demo`: docker-compose.yaml run for real, from nothing to nothing.

Everything is started; Airflow builds the demo's index on both Spark workers; rows are appended, and
the index follows; its answers are compared with brute force, before and after a restart of all
containers; then containers, networks and volumes are removed. It needs Docker with Compose and
Python, and nothing of this project installed. `KEEP=1` leaves everything running.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.error import URLError

from airflow_api import ENDED, Airflow, ask, log_in, starting
from compose_cli import Compose, require_compose
from headings import heading
from spark_history import ended_applications

PROJECT = "puffin-ann-demo"
TABLE, INDEX = "demo.glove.words", "glove_words"
BUILD, REFRESH = f"ann_build_{INDEX}", f"ann_refresh_{INDEX}"
DAGS = (BUILD, REFRESH, f"ann_maintain_{INDEX}", f"ann_evaluate_{INDEX}")
BUILDS = f"{BUILD}.build_shards"
"""The application that builds the shards."""
ROWS = "/opt/puffin-ann/include/local/compose_rows.py"
WORKERS = 2
PATIENCE = 900.0
"""Seconds for what takes one or two minutes on a machine that has nothing else to do."""
LARGE = "200k"
"""Of a file: the vectors of a shard take 4 MB, those that one task stages of it half a megabyte."""
FIND = (
    *("find", "/", "-xdev", "-type", "f", "-newer", "/etc/hostname", "-size", f"+{LARGE}"),
    *("-not", "-path", "/opt/airflow/cache/*", "-printf", "%s %p\\n"),
)
"""Files made since the container was started, on its own disk; volumes and mounts are others. The
cache is left out: the gate's searches keep shards there, as all searches do."""
NO_DATA = re.compile(r"\.(pyc|nbi|nbc|log)$|/(stdout|stderr)$")


class Demo:
    """One run of it, whose steps are told as they are done."""

    def __init__(self) -> None:
        names = ("AIRFLOW_PORT", "SPARK_PORT", "SPARK_HISTORY_PORT")
        self.ports = dict(zip(names, map(str, free_ports(len(names))), strict=True))
        self.compose = Compose(PROJECT, self.ports)
        self.address = f"http://127.0.0.1:{self.ports['AIRFLOW_PORT']}"
        self.began = time.monotonic()

    def run(self) -> None:
        """Do all steps; exits where one finds something wrong."""
        self.step("docker compose build")
        self.compose.show("build", "--quiet")
        self.step("docker compose up")
        self.compose.show("--progress", "quiet", "up", "--detach")
        airflow = self.airflow()
        self.tell_services()

        self.step(f"Airflow runs DAG {BUILD}")
        self.follow(airflow, BUILD, airflow.trigger(BUILD))
        # The watcher of the table asks for a refresh when it first sees the table; let that end.
        self.wait("the runs that the first look at the table started", lambda: quiet(airflow))
        self.command("puffin-ann", "status", TABLE, INDEX)
        self.check_workers()
        self.check_disks()
        self.check_page(airflow)
        self.command("python", ROWS, "check")

        self.step("rows are appended, and the index follows without any hand")
        before = succeeded(airflow, REFRESH)
        self.command("python", ROWS, "append")
        self.wait(
            f"a run of {REFRESH}", lambda: succeeded(airflow, REFRESH) > before and quiet(airflow)
        )
        self.command("python", ROWS, "check")
        self.check_disks()
        self.check_page(airflow)
        self.search()

        self.step("all containers are restarted, and answer as before")
        self.compose.show("--progress", "quiet", "restart")
        self.airflow()
        self.tell_services()
        self.command("python", ROWS, "check")

    def take_down(self) -> None:
        """Remove containers, networks and volumes, and make sure that nothing is left."""
        self.step("docker compose down --volumes")
        self.compose.show("--progress", "quiet", "down", "--volumes", "--remove-orphans")
        if left := self.compose.left():
            sys.exit(f"'down --volumes' left {', '.join(left)}")
        self.say("no container, network or volume is left")

    def step(self, text: str) -> None:
        """Print what is done now, and when."""
        heading(text, f"({time.monotonic() - self.began:.0f} s)")

    def say(self, text: str) -> None:
        """Print what was found."""
        print(f"   {text}", flush=True)

    def command(self, *arguments: str) -> None:
        """Run a command where Airflow's tasks run; print what it prints."""
        for line in self.compose("exec", "-T", "worker", *arguments).splitlines():
            self.say(line)

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait until something is so; exits where it does not become so."""
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            if time.monotonic() > deadline:
                sys.exit(f"after {PATIENCE:.0f} s still waiting for {what}")
            time.sleep(1)

    def airflow(self) -> Airflow:
        """Wait until Airflow is healthy and has read our DAGs; log in."""
        self.wait("Airflow to be healthy", lambda: not starting(self.address))
        passwords = self.compose(
            "exec", "-T", "api-server", "cat", "/opt/airflow/logins/passwords.json"
        )
        user, password = next(iter(json.loads(passwords).items()))
        airflow = Airflow(self.address, log_in(self.address, user, password))
        self.wait("Airflow to read the DAG file", lambda: airflow.dags() >= set(DAGS))
        return airflow

    def tell_services(self) -> None:
        """Wait until every service is healthy, or has done what it had to; print which they are."""
        self.wait("services to be healthy", lambda: not ailing(self.services()))
        services = self.services()
        running = sorted(
            service["Service"] for service in services if service["State"] == "running"
        )
        done = sorted(service["Service"] for service in services if service["State"] == "exited")
        self.say(f"healthy: {', '.join(running)}; done: {', '.join(done)}")

    def services(self) -> list[dict[str, str]]:
        """Return what `docker compose ps` tells of each container."""
        return listed(self.compose("ps", "--all", "--format", "json"))

    def follow(self, airflow: Airflow, dag: str, run: str) -> None:
        """Wait for the end of a run, and print its tasks as they end; exits unless it succeeds."""
        told: set[str] = set()
        began = time.monotonic()

        def has_ended() -> bool:
            state = airflow.states(dag)[run]
            for name, how in airflow.tasks(dag, run).items():
                if how in (*ENDED, "skipped", "upstream_failed") and name not in told:
                    told.add(name)
                    self.say(f"{time.monotonic() - began:6.1f} s  {name} {how}")
            return state in ENDED

        self.wait(f"run {run} of {dag}", has_ended)
        if (state := airflow.states(dag)[run]) != "success":
            sys.exit(f"run {run} of {dag} ended as {state}")

    def check_workers(self) -> None:
        """Make sure, by Spark's REST API, that both workers built shards."""
        base = f"http://127.0.0.1:{self.ports['SPARK_HISTORY_PORT']}/api/v1/"
        names = {f"{BUILD}.{task}" for task in ("train", "assign", "build_shards", "gate")}

        def told(path: str) -> Any:
            return ask(base + path, seconds=PATIENCE)

        def known() -> set[str]:
            return {application["name"] for application in told("applications?status=completed")}

        self.wait("Spark's history server to read what it is told", lambda: known() >= names)
        applications = ended_applications(told)
        for application in applications:
            spread = ", ".join(
                f"{host}: {count}" for host, count in sorted(application.tasks.items())
            )
            self.say(f"Spark tasks of {application.name}: {spread or 'none but in the driver'}")
        built = {
            host
            for application in applications
            if application.name == BUILDS
            for host in application.tasks
        }
        if len(built) != WORKERS:
            sys.exit(f"shards were built by {len(built)} workers, not by {WORKERS}")
        self.say("both workers built shards")

    def check_disks(self) -> None:
        """Make sure that nothing of the build is left on the disk of whoever took part in it."""
        places = [
            ("api-server", 1),
            ("worker", 1),
            *(("spark-worker", number + 1) for number in range(WORKERS)),
        ]
        for service, number in places:
            place = ("--user", "root", "--index", str(number), service)
            found = self.compose("exec", "-T", *place, *FIND)
            if left := data_files(found.splitlines()):
                sys.exit(f"on the disk of {service} {number} there is {'; '.join(left)}")
        self.say("no data on the disks of all who took part, but for their caches of shards")

    def check_page(self, airflow: Airflow) -> None:
        """Make sure that the API server's page tells how the index stands, as the worker found."""

        def told() -> dict[str, Any]:
            return next(each for each in airflow.indexes() if each["index"] == INDEX)

        self.wait("the page to tell that the index is fresh", lambda: told()["state"] == "fresh")
        found = told()
        figures, run = found["figures"], found["last_run"]
        self.say(
            f"the page tells: {found['index']} is {found['state']}, {figures['rows']:,} rows, "
            f"coverage {figures['coverage']:.2%}, recall {figures['recall']:.4f}, "
            f"last run of {run['dag_id']}: {run['state']}"
        )
        task = (run["dag_id"], run["run_id"], "report")
        self.wait("the log of a task that ran in the worker", lambda: INDEX in airflow.log(*task))
        self.say("the API server has the logs of tasks, though it shares no disk with the worker")

    def search(self) -> None:
        """Search as a person does."""
        words = ("--key", "word=coffee", "--key", "word=paris")
        self.command("puffin-ann", "search", TABLE, INDEX, *words, "--k", "5", "--columns", "word")


def ailing(services: Iterable[dict[str, str]]) -> list[str]:
    """Return the services that are neither healthy nor done, of what `docker compose ps` tells."""
    return [
        service["Service"]
        for service in services
        if (service["State"], service["Health"]) != ("running", "healthy")
        and (service["State"], int(service["ExitCode"])) != ("exited", 0)
    ]


def listed(printed: str) -> list[dict[str, str]]:
    """Read `ps --format json`: a list, or by newer versions of Compose a line for each one."""
    if printed.lstrip().startswith("["):
        found: list[dict[str, str]] = json.loads(printed)
        return found
    return [json.loads(line) for line in printed.splitlines()]


def data_files(found: Iterable[str]) -> list[str]:
    """Return what may be data of the files that FIND found: neither code nor a log."""
    return [line for line in found if not NO_DATA.search(line)]


def quiet(airflow: Airflow) -> bool:
    """Tell whether no run is queued or running."""
    return all(state in ENDED for dag in DAGS for state in airflow.states(dag).values())


def succeeded(airflow: Airflow, dag: str) -> int:
    """Return how many runs of a DAG have succeeded."""
    return sum(state == "success" for state in airflow.states(dag).values())


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(listener.getsockname()[1]) for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def main() -> None:
    """Run the demo, and take everything down however it ends."""
    require_compose()
    demo = Demo()
    try:
        demo.run()
    except (SystemExit, subprocess.CalledProcessError, URLError, TimeoutError):
        demo.compose.show("ps", "--all")
        demo.compose.show("logs", "--no-color", "--tail", "30")
        raise
    finally:
        if os.environ.get("KEEP"):
            demo.say(f"everything still runs: {demo.address}, project {PROJECT}")
        else:
            demo.take_down()
    demo.step("done")


if __name__ == "__main__":
    main()
