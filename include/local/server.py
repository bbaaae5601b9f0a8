"""`make up` and `make down`: a full Airflow on loopback, over the same folder as the demo.

The parts are started one by one, not by `airflow standalone`: that one opens log servers on every
interface, and goes on without a part that ended. Parts and users read logs from the same disk.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from airflow_api import paused, starting
from home import ROOT, environment, write_catalog
from pydantic import BaseModel, ValidationError

HOST = "127.0.0.1"
START_SECONDS = 120
COMMANDS = {
    "api-server": ["api-server"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}


class Part(BaseModel):
    """A process that was started; each leads a session of its own, where its children live."""

    name: str
    pid: int
    created: float

    def process(self) -> psutil.Process | None:
        """Return it if it runs: the same process, not one that got its number later."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            if process.create_time() == self.created and is_alive(process):
                return process
        return None


class Server(BaseModel):
    """What `up` started, as `down` and a second `up` find it."""

    address: str
    boot: float
    parts: list[Part] = []

    def family(self) -> list[psutil.Process]:
        """Return every process of it that runs, orphans of a part that was killed included."""
        leaders = [process for part in self.parts if (process := part.process())]
        found = {child for leader in leaders for child in leader.children(recursive=True)}
        if abs(psutil.boot_time() - self.boot) < 60:
            sessions = {part.pid for part in self.parts}
            found |= {process for process in psutil.process_iter() if _session(process) in sessions}
        return [*filter(is_alive, found.difference(leaders)), *leaders]


def is_alive(process: psutil.Process) -> bool:
    """Say whether a process runs; one that ended but that nobody waited for does not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _session(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except OSError:
        return -1


class Stage:
    """The files of one local Airflow."""

    def __init__(self, local: Path) -> None:
        self.local = local
        self.home = local / "airflow"
        self.record = self.home / "server.json"
        self.passwords = self.home / "simple_auth_manager_passwords.json.generated"

    def log(self, name: str) -> Path:
        """Return the log of one part."""
        return self.home / f"{name}.log"

    def server(self) -> Server | None:
        """Return the server that was started and has not been stopped."""
        try:
            server = Server.model_validate_json(self.record.read_bytes())
        except (OSError, ValidationError):
            return None
        return server if server.family() else None


def up(stage: Stage, port: int) -> None:
    """Start API server, scheduler, DAG processor and triggerer; return when all are healthy."""
    server = stage.server() or start(stage, port)
    deadline = time.monotonic() + START_SECONDS
    while waiting := starting(server.address):
        for part in server.parts:
            if part.process() is None:
                log = stage.log(part.name)
                down(stage)
                sys.exit(f"Airflow's {part.name} ended while it started; see {log}")
        if time.monotonic() > deadline:
            sys.exit(
                f"Airflow is not healthy yet after {START_SECONDS} s: still starting is its "
                f"{', '.join(waiting)}. Nothing was stopped: 'make up' again goes on waiting for "
                f"it, 'make down' stops it; the logs are in {stage.home}"
            )
        time.sleep(0.5)
    print(f"Airflow is up:  {server.address}")
    print(f"its indexes:    {server.address}/plugin/vector-indexes")
    logins = json.loads(stage.passwords.read_text())
    for user, password in logins.items():
        print(f"log in as:      {user}  {password}")
    for dag in paused(server.address, *next(iter(logins.items()))):
        print(f"paused:         {dag}; its runs wait until you unpause it, by its switch in the UI")
    print("stop it with:   make down")


def start(stage: Stage, port: int) -> Server:
    """Create the database where there is none, then start every part."""
    require_free(port)
    print("starting Airflow; this takes about half a minute", file=sys.stderr)
    write_catalog(stage.local)
    stage.home.mkdir(parents=True, exist_ok=True)
    server = Server(address=f"http://{HOST}:{port}", boot=psutil.boot_time())
    variables = {
        **environment(stage.local),
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": server.address,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{server.address}/execution/",
    }
    migrate(stage, variables)
    for name, command in COMMANDS.items():
        with stage.log(name).open("w") as log:
            started = subprocess.Popen(
                ["airflow", *command],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )
        created = psutil.Process(started.pid).create_time()
        server.parts.append(Part(name=name, pid=started.pid, created=created))
        stage.record.write_text(server.model_dump_json())
    return server


def require_free(port: int) -> None:
    """Exit with what to do if something listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            sys.exit(
                f"port {port} cannot be had: {error.strerror}; "
                f"choose another one, for example: make up PORT={port % 60_000 + 1025}"
            )


def migrate(stage: Stage, variables: dict[str, str]) -> None:
    """Create Airflow's database, or bring it up to date; this writes its configuration, too."""
    log = stage.log("migrate")
    with log.open("w") as out:
        done = subprocess.run(
            ["airflow", "db", "migrate"], env=variables, stdout=out, stderr=out, check=False
        )
    if done.returncode:
        sys.exit(f"Airflow's database cannot be created; see {log}")


def down(stage: Stage) -> None:
    """Stop every part and all their children, Spark's included."""
    server = stage.server()
    if server is None:
        stage.record.unlink(missing_ok=True)
        print("Airflow is not running")
        return
    end(server, psutil.Process.terminate, 12)
    end(server, psutil.Process.kill, 10)
    if left := server.family():
        sys.exit(f"still running: {', '.join(str(process.pid) for process in left)}")
    stage.record.unlink(missing_ok=True)
    print("Airflow is down")


def end(server: Server, how: Callable[[psutil.Process], None], seconds: float) -> None:
    """Send a signal to all processes of a server, and wait for their ends."""
    family = server.family()
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            how(process)
    psutil.wait_procs(family, timeout=seconds)


def chosen_port() -> int:
    """Return the port to listen on, from PORT."""
    given = os.environ.get("PORT", "8080")
    if not given.isdecimal() or not 0 < int(given) < 65536:
        sys.exit(f"PORT={given}: expected a number from 1 to 65535")
    return int(given)


if __name__ == "__main__":
    place = Stage(Path(os.environ.get("PUFFIN_ANN_LOCAL", ROOT / ".local")))
    if sys.argv[1:] == ["up"]:
        up(place, chosen_port())
    elif sys.argv[1:] == ["down"]:
        down(place)
    else:
        sys.exit("usage: server.py up|down")
