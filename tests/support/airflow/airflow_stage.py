"""A local Airflow home with its catalog and declarations, and ports for its servers."""

import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog

QUERIES = 400


@dataclass(frozen=True)
class Stage:
    """A folder with an Airflow home, a catalog and declarations, and the variables for it."""

    folder: Path
    variables: dict[str, str]

    @property
    def declarations(self) -> Path:
        return self.folder / "indexes"

    def catalog(self) -> Catalog:
        return load_catalog(
            "demo",
            type="sql",
            uri=f"sqlite:///{self.folder / 'catalog.db'}",
            warehouse=f"file://{self.folder / 'warehouse'}",
        )

    def declare(self, name: str, text: str) -> None:
        (self.declarations / f"{name}.yaml").write_text(text)

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env={**self.variables, **variables},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def run_dag(self, name: str, **variables: str) -> str:
        """Run a DAG to its end and return its log; fails the test unless the run succeeded."""
        done = self.run("airflow", "dags", "test", name, **variables)
        log = done.stdout + done.stderr
        assert done.returncode == 0, log[-6000:]
        assert "state=success" in log, log[-6000:]
        return log


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port} after {seconds} s")
