"""An API server of Airflow that knows indexes in every state; no scheduler runs beside it."""

import gzip
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Literal

from home import environment, write_catalog

from tests.support.airflow.airflow_stage import free_port
from tests.support.paths import ROOT

AuthManager = Literal["simple", "fab"]
MANAGERS: dict[AuthManager, str] = {
    "simple": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
    "fab": "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager",
}
USERS = ("admin", "viewer", "nobody")
BASE = "/air/flow"
"""Airflow is served below a path, as behind many a proxy."""

START_SECONDS = 300
ANSWER_SECONDS = 60
REAL = "real_words"
DECLARATIONS = {
    "words": "{table: demo.glove.words, column: embedding, key: word, recall_target: 0.95}",
    # Where a field is misspelt there is no index, and a DAG that says so.
    "invoices": "{table: demo.glove.invoices, colum: embedding}",
    # This table is there, and so is its index: see `cockpit_index`.
    REAL: "{table: demo.real.words, column: embedding, key: word, shards: 2, recall_target: 0.8}",
}


@dataclass
class Cockpit:
    """The server, and what tests ask of it.

    Attributes:
        local: a folder for Airflow's home, a catalog and declarations.
        auth_manager: who knows the users, whose passwords are their names.
        port: on loopback.
    """

    local: Path
    auth_manager: AuthManager = "simple"
    port: int = field(default_factory=free_port)
    process: subprocess.Popen | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}{BASE}"

    @property
    def log(self) -> Path:
        return self.local / "server.log"

    @property
    def variables(self) -> dict[str, str]:
        return {
            **environment(self.local),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "include" / "local")]),
            "AIRFLOW__API__BASE_URL": self.address,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": "of-the-tests-of-the-page",
            "AIRFLOW__API_AUTH__JWT_SECRET": "of-the-tests-of-the-page-long-enough-for-a-digest",
            "AIRFLOW__CORE__AUTH_MANAGER": MANAGERS[self.auth_manager],
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,viewer:viewer,nobody:",
            "PUFFIN_ANN_DECLARATIONS_DIR": str(self.local / "indexes"),
        }

    def run(self, *command: str) -> None:
        done = subprocess.run(
            command, env=self.variables, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]

    def start(self, indexes: int) -> None:
        """Make the database, let it know so many indexes, and serve."""
        (self.local / "airflow").mkdir(parents=True)
        declarations = self.local / "indexes"
        declarations.mkdir()
        for name, text in DECLARATIONS.items():
            (declarations / f"{name}.yaml").write_text(text)
        passwords = self.local / "airflow" / "simple_auth_manager_passwords.json.generated"
        passwords.write_text(json.dumps({user: user for user in USERS}))
        write_catalog(self.local)
        self.run("airflow", "db", "migrate")
        self.run("airflow", "dags", "reserialize")
        self.seed(indexes)
        if self.auth_manager == "fab":
            self.run(sys.executable, "-m", "tests.support.airflow.fab_users")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["airflow", "api-server", "--host", "127.0.0.1", "--port", str(self.port)],
                env=self.variables,
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < deadline, "the API server does not answer"
            time.sleep(0.5)

    def seed(self, indexes: int) -> None:
        """Let it know so many indexes."""
        self.run(sys.executable, "-m", "tests.support.cockpit.cockpit_rows", str(indexes))

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)

    def answers(self) -> bool:
        try:
            return self.get("/api/v2/version")[0] == 200
        except OSError:
            return False

    def token(self, user: str) -> str:
        status, text, _ = self.get("/auth/token", body={"username": user, "password": user})
        assert status == 201, text
        return json.loads(text)["access_token"]

    def get(
        self, path: str, token: str = "", body: object = None, method: str | None = None
    ) -> tuple[int, str, Message]:
        """Get a page as a browser does, which shows its login as a cookie; with a body, post it."""
        request = urllib.request.Request(
            self.address + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Accept-Encoding": "gzip"}
            | ({"Cookie": f"_token={token}"} if token else {}),
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return answer.status, _text(answer), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, _text(error), error.headers


def _text(answer) -> str:
    data = answer.read()
    return (
        gzip.decompress(data) if answer.headers["Content-Encoding"] == "gzip" else data
    ).decode()
