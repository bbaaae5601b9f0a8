"""The parts of Airflow that docker-compose.yaml runs, as processes that share no folder.

Each has a home of its own; all but the worker know the database. Commands, executor and its
settings are those of docker-compose.yaml, with this machine's address in place of a container's.
"""

import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from airflow_api import Airflow, log_in, starting
from home import environment, write_catalog

from tests.support.airflow.airflow_stage import free_port
from tests.support.paths import ROOT

SERVICES = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
PARTS = ("api-server", "scheduler", "worker", "dag-processor", "triggerer")
SEE_TABLES = ("worker", "dag-processor", "triggerer")
"""Those that know the catalog and the declarations; the page of indexes needs neither."""

SECONDS = 600
SETTINGS = (
    "AIRFLOW__EDGE__",
    "AIRFLOW__CORE__EXECUTOR",
    "AIRFLOW__CORE__EXECUTION_API_SERVER_URL",
    "AIRFLOW__API_AUTH__JWT_LEEWAY",
)
SECRET = "of-the-parts-of-airflow-that-are-apart-and-long-enough-for-any-digest"


@dataclass
class AirflowApart:
    """Airflow in parts.

    Attributes:
        folder: with a folder for each part, and `lake`, which has the catalog.
    """

    folder: Path
    port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen] = field(default_factory=dict)

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def declarations(self) -> Path:
        return self.lake / "indexes"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def home(self, part: str) -> Path:
        return self.folder / part / "airflow"

    def variables(self, part: str) -> dict[str, str]:
        given = {
            name: value.replace("http://api-server:8080", self.address)
            for name, value in SERVICES[part]["environment"].items()
            if name.startswith(SETTINGS)
        }
        made = {
            **environment(self.folder / part),
            **given,
            "AIRFLOW__API_AUTH__JWT_SECRET": SECRET,
            "AIRFLOW__CORE__PARALLELISM": "2",
            "PUFFIN_ANN_DECLARATIONS_DIR": str(self.folder / "none"),
        }
        if part in SEE_TABLES:
            made["PYICEBERG_HOME"] = str(self.lake)
            made["PUFFIN_ANN_DECLARATIONS_DIR"] = str(self.declarations)
        if part != "worker":
            made |= {
                "AIRFLOW__API__BASE_URL": self.address,
                "AIRFLOW__API__WORKERS": "1",
                "AIRFLOW__API__SECRET_KEY": SECRET,
                "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.folder}/airflow.db",
            }
        return made

    def command(self, part: str) -> list[str]:
        command = ["airflow", *SERVICES[part]["command"].split()]
        if part == "api-server":
            command += ["--host", "127.0.0.1", "--port", str(self.port)]
        if part in ("scheduler", "triggerer"):
            command.append("--skip-serve-logs")
        return [
            str(self.folder / "edge.pid") if word.endswith(".pid") else word for word in command
        ]

    def make(self) -> None:
        """Make the catalog, the folders and the database."""
        self.declarations.mkdir(parents=True)
        write_catalog(self.lake)
        for part in PARTS:
            self.home(part).mkdir(parents=True)
        passwords = self.home("api-server") / "simple_auth_manager_passwords.json.generated"
        passwords.write_text(json.dumps({"admin": "admin"}))
        subprocess.run(
            ["airflow", "db", "migrate"],
            env=self.variables("scheduler"),
            check=True,
            capture_output=True,
        )

    def start(self) -> Airflow:
        """Start every part; return once all are healthy, with somebody logged in."""
        for part in PARTS:
            with self.log(part).open("w") as log:
                self.processes[part] = subprocess.Popen(
                    self.command(part),
                    env=self.variables(part),
                    cwd=self.folder / part,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            if part == "api-server":
                self.wait(lambda: "api-server" not in starting(self.address), part)
        self.wait(lambda: not starting(self.address), "Airflow")
        return Airflow(self.address, log_in(self.address, "admin", "admin"))

    def log(self, part: str) -> Path:
        return self.folder / f"{part}.log"

    def wait(self, condition, what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            for part, process in self.processes.items():
                assert process.poll() is None, f"{part}: {self.log(part).read_text()[-4000:]}"
            assert time.monotonic() < deadline, f"{what}: not so after {SECONDS} s"
            time.sleep(0.5)

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)


def environment_of(process: subprocess.Popen) -> dict[str, str]:
    """Return the environment of a process, as the system has it."""
    entries = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    return dict(os.fsdecode(entry).split("=", 1) for entry in entries if b"=" in entry)
