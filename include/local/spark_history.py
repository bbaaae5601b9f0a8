"""What Spark's history server tells by its REST API of applications that have ended."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WARM_UP = "puffin-ann-warm-up"
"""Group of the jobs that only start Python workers, which do nothing of a build."""

Ask = Callable[[str], Any]
"""Gives the JSON below `/api/v1/`."""


@dataclass(frozen=True)
class Application:
    """An application that has ended.

    Attributes:
        name: `<DAG>.<task>`.
        tasks: how many tasks succeeded, by the host of the executor that ran them.
    """

    name: str
    tasks: dict[str, int]


def ended_applications(ask: Ask) -> list[Application]:
    """Return what the history server knows, the first that was started first."""
    listed = [
        application
        for application in ask("applications")
        if application["attempts"][0]["completed"]
    ]
    listed.sort(key=lambda application: str(application["attempts"][0]["startTime"]))
    return [
        Application(application["name"], _tasks(ask, application["id"])) for application in listed
    ]


def _tasks(ask: Ask, application: str) -> dict[str, int]:
    base = f"applications/{application}"
    warming = {
        stage
        for job in ask(f"{base}/jobs")
        if job.get("jobGroup") == WARM_UP
        for stage in job["stageIds"]
    }
    hosts: Counter[str] = Counter()
    for stage in ask(f"{base}/stages?status=complete"):
        if stage["stageId"] in warming:
            continue
        path = f"{base}/stages/{stage['stageId']}/{stage['attemptId']}/taskList?length=10000"
        hosts.update(task["host"] for task in ask(path) if task["status"] == "SUCCESS")
    return dict(hosts)
