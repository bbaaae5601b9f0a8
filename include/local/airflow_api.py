"""What the local programs ask of an Airflow's API server; needs nothing but Python itself."""

import json
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

HEALTH = ("metadatabase", "scheduler", "triggerer", "dag_processor")
ENDED = ("success", "failed")
PATIENCE = 60.0
"""Seconds that an answer may take on a machine that has much else to do."""


def ask(
    address: str, body: dict[str, Any] | None = None, *, token: str = "", seconds: float = 5
) -> Any:
    """Return the JSON that a server answers within some seconds; with a body, to a POST of it."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data=data, headers=headers)  # noqa: S310 (loopback)
    with urllib.request.urlopen(request, timeout=seconds) as answer:  # noqa: S310
        return json.load(answer)


def starting(address: str) -> list[str]:
    """Return the parts that are not healthy yet; of the others the API server knows."""
    try:
        health = ask(f"{address}/api/v2/monitor/health")
    except (OSError, ValueError):
        return ["api-server"]
    return [part for part in HEALTH if (health.get(part) or {}).get("status") != "healthy"]


def log_in(address: str, user: str, password: str) -> str:
    """Return the token of a user."""
    return str(
        ask(f"{address}/auth/token", {"username": user, "password": password})["access_token"]
    )


def paused(address: str, user: str, password: str) -> list[str]:
    """Return our DAGs that are paused; none where Airflow does not say."""
    try:
        token = log_in(address, user, password)
        found = ask(f"{address}/api/v2/dags?paused=true&tags=puffin-ann&limit=100", token=token)
        return [dag["dag_id"] for dag in found["dags"]]
    except (OSError, ValueError, KeyError):
        return []  # to tell them is a courtesy


@dataclass(frozen=True)
class Airflow:
    """An Airflow that somebody has logged in to."""

    address: str
    token: str = field(repr=False)

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        address = f"{self.address}/api/v2/{path}"
        return ask(address, body, token=self.token, seconds=PATIENCE)

    def dags(self) -> set[str]:
        """Return the ids of our DAGs that it has read."""
        return {dag["dag_id"] for dag in self._ask("dags?tags=puffin-ann&limit=100")["dags"]}

    def indexes(self) -> list[dict[str, Any]]:
        """Return what the page of indexes tells monitoring of each."""
        address = f"{self.address}/puffin-ann/api"
        return list(ask(address, token=self.token, seconds=PATIENCE)["indexes"])

    def log(self, dag: str, run: str, task: str) -> str:
        """Return the log of the first attempt of a run's task, as the API server has it."""
        path = f"dags/{dag}/dagRuns/{urllib.parse.quote(run, safe='')}/taskInstances/{task}/logs/1"
        return json.dumps(self._ask(path))

    def trigger(self, dag: str) -> str:
        """Ask for a run of a DAG; returns the run's id."""
        return str(self._ask(f"dags/{dag}/dagRuns", {"logical_date": None})["dag_run_id"])

    def states(self, dag: str) -> dict[str, str]:
        """Return the states of a DAG's runs by their ids, the oldest first."""
        found = self._ask(f"dags/{dag}/dagRuns?order_by=id&limit=100")["dag_runs"]
        return {run["dag_run_id"]: run["state"] for run in found}

    def tasks(self, dag: str, run: str) -> dict[str, str | None]:
        """Return the states of a run's tasks, `name[number]` where a task is mapped."""
        path = f"dags/{dag}/dagRuns/{urllib.parse.quote(run, safe='')}/taskInstances?limit=100"
        return {
            task["task_id"] + (f"[{task['map_index']}]" if task["map_index"] >= 0 else ""): task[
                "state"
            ]
            for task in self._ask(path)["task_instances"]
        }
