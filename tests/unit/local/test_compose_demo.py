"""What `make compose-demo` reads out of what Docker, find and Airflow print."""

import json

import pytest
from airflow_api import Airflow
from compose_cli import require_compose
from compose_demo import NO_DATA, ailing, data_files, listed, quiet, succeeded


def service(name: str, state: str, health: str = "", code: int = 0) -> dict:
    return {"Service": name, "State": state, "Health": health, "ExitCode": code}


HEALTHY = service("s3", "running", "healthy")
DONE = service("init", "exited")


def test_services_that_are_healthy_or_have_done_their_work_are_not_ailing():
    assert ailing([HEALTHY, DONE]) == []


@pytest.mark.parametrize(
    "one",
    [
        service("s3", "running", "starting"),
        service("s3", "running", "unhealthy"),
        service("s3", "restarting"),
        service("s3", "exited", code=1),
        service("s3", "created"),
    ],
)
def test_a_service_that_is_not_healthy_or_has_failed_is_ailing(one):
    assert ailing([HEALTHY, one]) == ["s3"]


@pytest.mark.parametrize("form", ["list", "lines"])
def test_containers_are_read_as_older_and_newer_versions_of_compose_list_them(form):
    both = [HEALTHY, DONE]
    printed = json.dumps(both) if form == "list" else "\n".join(map(json.dumps, both))
    assert listed(printed + "\n") == both


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/segment-0.bin",
        "/opt/airflow/cache/demo/shards/a.npy",
        "/warehouse/glove/words/data/1.parquet",
        "/tmp/spark-work/app-1/0/stdout.puffin",
    ],
)
def test_what_a_build_would_leave_on_disk_counts_as_data(path):
    assert data_files([f"4000000 {path}"]) == [f"4000000 {path}"]


@pytest.mark.parametrize(
    "path", ["/tmp/spark-work/app-1/0/stderr", "/opt/airflow/cache/kernels/k.1.nbc", "/x/m.pyc"]
)
def test_logs_and_code_are_no_data(path):
    assert NO_DATA.search(path)
    assert data_files([f"4000000 {path}"]) == []


class Runs(Airflow):
    """An Airflow that has had these runs of every DAG."""

    def __init__(self, *found: str) -> None:
        super().__init__("http://127.0.0.1:0", "token")
        object.__setattr__(self, "found", found)

    def states(self, dag: str) -> dict[str, str]:
        return {f"run-{number}": state for number, state in enumerate(self.found)}


def test_an_airflow_with_a_run_that_has_not_ended_is_not_quiet():
    assert quiet(Runs("success", "failed"))
    assert not quiet(Runs("success", "queued"))


def test_only_runs_that_succeeded_are_counted():
    assert succeeded(Runs("success", "failed", "success", "running"), "ann_refresh_words") == 2


def test_a_machine_without_docker_is_told_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="install Docker with its Compose plugin"):
        require_compose()


@pytest.mark.parametrize(
    ("answered", "told"), [("version", "start Docker's engine"), ("info", "2.20 or newer")]
)
def test_a_docker_without_compose_or_without_its_engine_is_told_what_is_missing(
    monkeypatch, tmp_path, answered, told
):
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\ncase "$*" in *{answered}) exit 0 ;; esac\necho no >&2; exit 1\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=told):
        require_compose()
