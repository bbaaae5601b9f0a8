"""What `spark-submit` is called with: what a connection says, and what a declaration does."""

import json
import sys
from itertools import pairwise
from types import SimpleNamespace

import pytest
from airflow.providers.apache.spark.hooks import spark_submit as provider
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from puffin_ann.airflow.submit import spark_submit as backend
from puffin_ann.airflow.submit.submission import Submission
from puffin_ann.declaration import SparkOptions
from puffin_ann.errors import BadInputError, NotInstalledError

LOCAL = {"conn_type": "spark", "host": "local[2]"}
STANDALONE = {"conn_type": "spark", "host": "spark://head", "port": 7077}
YARN = {"conn_type": "spark", "host": "yarn"}
KUBERNETES = {"conn_type": "spark", "host": "k8s://https://kube", "port": 6443}
FOLLOWED = {"yarn_resourcemanager_webapp_address": "http://rm:8088"}


@pytest.fixture
def connect(monkeypatch):
    """Have Airflow know a connection `spark_words`; also what only its Kubernetes provider has."""
    monkeypatch.setattr(provider, "kube_client", SimpleNamespace(), raising=False)
    monkeypatch.delenv("PYICEBERG_HOME", raising=False)

    def known(conn: dict[str, object], **extra: str) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_WORDS", json.dumps({**conn, "extra": extra}))

    return known


@pytest.fixture
def submitted(monkeypatch):
    """Execute what is made of options as a task does; returns the command, and its environment."""
    started = []

    def submit(hook: SparkSubmitHook, application: str) -> str:
        started.append(hook._build_spark_submit_command(application))
        started.append(hook._env)
        hook._driver_id = hook._yarn_application_id = "application_1"
        return "application_1"

    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
    monkeypatch.setattr(SparkSubmitHook, "_start_yarn_application_status_tracking", lambda *_: None)

    def run(**options: object) -> tuple[list[str], dict[str, str] | None]:
        spark = SparkOptions.model_validate({"conn_id": "spark_words", **options})
        operator = backend.make_operator(Submission.of("train", "words.train", spark))
        operator.execute({"ti": SimpleNamespace(stats_tags={}, xcom_push=lambda **_: None)})
        command, environment = started
        started.clear()
        return command, environment

    return run


def conf_of(command: list[str]) -> dict[str, str]:
    return dict(part.split("=", 1) for flag, part in pairwise(command) if flag == "--conf")


def option(command: list[str], flag: str) -> str | None:
    return command[command.index(flag) + 1] if flag in command else None


@pytest.mark.parametrize(
    ("conn", "master"),
    [
        (LOCAL, "local[2]"),
        (STANDALONE, "spark://head:7077"),
        (YARN, "yarn"),
        (KUBERNETES, "k8s://https://kube:6443"),
    ],
)
def test_the_connection_names_the_master_and_nothing_else_is_added(
    connect, submitted, conn, master
):
    connect(conn)
    command, environment = submitted()
    assert option(command, "--master") == master
    assert option(command, "--name") == "words.train"
    assert conf_of(command) == {}
    assert not {"--deploy-mode", "--files", "--py-files", "--archives"} & set(command)
    assert environment is None


@pytest.mark.parametrize(
    ("conn", "options", "seen"),
    [
        (LOCAL, {}, True),
        (YARN, {"deploy_mode": "client"}, True),
        (YARN, {"deploy_mode": "cluster"}, False),
    ],
)
def test_what_a_driver_on_the_cluster_prints_is_not_seen(connect, conn, options, seen):
    connect(conn)
    spark = SparkOptions.model_validate({"conn_id": "spark_words", **options})
    operator = backend.make_operator(Submission.of("train", "words.train", spark))
    assert operator.prints_here is seen


@pytest.mark.parametrize("conn", [LOCAL, STANDALONE, YARN, KUBERNETES])
def test_lists_and_settings_are_passed_on(connect, submitted, conn):
    connect(conn)
    command, _ = submitted(
        conf={"spark.executor.cores": 2},
        files=["/etc/log4j2.properties", "hdfs:///site.xml"],
        py_files=["more.zip"],
        archives=["environment.tar.gz#environment"],
        applications="local:///opt/apps/",
    )
    assert option(command, "--files") == "/etc/log4j2.properties,hdfs:///site.xml"
    assert option(command, "--py-files") == "more.zip"
    assert option(command, "--archives") == "environment.tar.gz#environment"
    assert conf_of(command)["spark.executor.cores"] == "2"
    assert "local:///opt/apps/train.py" in command


@pytest.mark.parametrize(
    ("conn", "options", "driver"),
    [
        (LOCAL, {}, "process"),
        (STANDALONE, {}, "process"),
        (YARN, {}, "spark.yarn.appMasterEnv.A"),
        (YARN, {"deploy_mode": "cluster"}, "spark.yarn.appMasterEnv.A"),
        (KUBERNETES, {"deploy_mode": "cluster"}, "spark.kubernetes.driverEnv.A"),
    ],
)
def test_variables_reach_the_driver_and_the_executors(connect, submitted, conn, options, driver):
    connect(conn)
    command, environment = submitted(env={"A": "b"}, **options)
    assert conf_of(command)["spark.executorEnv.A"] == "b"
    found = environment["A"] if driver == "process" else conf_of(command)[driver]
    assert found == "b"


def test_the_deploy_mode_is_the_connections_unless_it_is_declared(connect, submitted):
    connect(YARN, **{"deploy-mode": "cluster"})
    assert option(submitted()[0], "--deploy-mode") == "cluster"
    assert option(submitted(deploy_mode="client")[0], "--deploy-mode") == "client"


@pytest.mark.parametrize(("extra", "waits"), [({}, None), (FOLLOWED, "false")])
def test_a_driver_on_yarn_is_followed_by_its_resource_manager_where_that_is_known(
    connect, submitted, extra, waits
):
    connect(YARN, **extra)
    command, _ = submitted(deploy_mode="cluster")
    assert conf_of(command).get("spark.yarn.submit.waitAppCompletion") == waits


class TestCheck:
    @pytest.fixture(autouse=True)
    def spark(self, monkeypatch):
        monkeypatch.setattr("puffin_ann.lifecycle.spark.session.require_spark", lambda: None)

    def check(self, **options: object) -> None:
        backend.check(SparkOptions.model_validate({"conn_id": "spark_words", **options}))

    @pytest.mark.parametrize("conn", [LOCAL, STANDALONE])
    def test_where_spark_runs_no_python_on_the_cluster_that_is_said_first(self, connect, conn):
        connect(conn)
        self.check(deploy_mode="client")
        with pytest.raises(BadInputError, match=r"'cluster'.*set 'client'"):
            self.check(deploy_mode="cluster")
        connect(conn, **{"deploy-mode": "cluster"})
        with pytest.raises(BadInputError, match="or the connection's"):
            self.check()

    def test_kubernetes_needs_a_provider_that_is_named(self, connect, monkeypatch):
        connect(KUBERNETES)
        monkeypatch.setitem(sys.modules, "airflow.providers.cncf.kubernetes.kube_client", None)
        with pytest.raises(NotInstalledError, match="apache-airflow-providers-cncf-kubernetes"):
            self.check()
