"""What is submitted to Spark: what is declared, as it is written; and how a failure is told."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import DAG
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from puffin_ann.airflow.operators.submit_stage import StageOperator
from tests.support.airflow.task_instance import task_instance

KINDS = ("build", "refresh", "maintain", "evaluate")
LOOKING_OTHERWISE = (
    "1.10",
    "1_000",
    "None",
    "0x10",
    "[1, 2]",
    "{{ x }}",
    "{% if %}",
    "{#",
    "a.sql",
)


@pytest.fixture
def spread(tmp_path) -> str:
    """A template that leaves a file behind where it is rendered without a sandbox."""
    run = f"cycler.__init__.__globals__.os.mkdir('{tmp_path}/ran')"
    return "{{" + run.replace(" ", "") + "}}"


@pytest.fixture
def hostile(declarations, spread) -> Path:
    """A declaration with a template in every text that may be any."""
    given = {
        "table": "demo.glove.{{7*7}}",
        "column": spread,
        "key": spread,
        "spark": {
            "conn_id": "{{conn.any}}",
            "conf": {
                "spark.app.note": spread,
                spread: "key",
                **{f"spark.n{n}": text for n, text in enumerate(LOOKING_OTHERWISE)},
            },
            "env": {"NOTE": spread},
            "files": [spread],
            "archives": [spread],
            "applications": "{{7*7}}/apps",
        },
    }
    path = declarations / "words.yaml"
    path.write_text(yaml.safe_dump(given))
    return path


def stages_of(dag: DAG) -> list[StageOperator]:
    """The tasks that submit, mapped ones as they are for the first group."""
    found = []
    for task in dag.tasks:
        if isinstance(task, MappedOperator):
            found.append(task.unmap({"group": "000"}))
        elif isinstance(task, StageOperator):
            found.append(task)
    return found


@pytest.fixture
def submitted(monkeypatch):
    """Execute a stage as a worker does, up to spark-submit; returns the command."""
    commands = []

    def submit(hook: SparkSubmitHook, application: str) -> None:
        commands.append(hook._build_spark_submit_command(application))

    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
    conn = json.dumps({"conn_type": "spark", "host": "local[1]"})
    monkeypatch.setenv("AIRFLOW_CONN_{{CONN.ANY}}", conn)

    def run(task: StageOperator, dag: DAG) -> list[str]:
        ti = task_instance("s3://b/{{ plan }}")
        context = {"ti": ti, "run_id": "manual__{{ 1 }}", "params": {}}
        task.render_template_fields(context, jinja_env=dag.get_template_env())
        task.execute(context)
        return commands.pop()

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_templates_in_a_declaration_are_text(hostile, load_dags, submitted, spread, tmp_path, kind):
    dag = load_dags(kind)[f"ann_{kind}_words"]
    tasks = stages_of(dag)
    assert tasks
    for task in tasks:
        command = submitted(task, dag)
        given = dict(part.split("=", 1) for flag, part in pairwise(command) if flag == "--conf")
        assert given["spark.app.note"] == spread
        assert "key" in given.values()
        written = {f"spark.n{n}": text for n, text in enumerate(LOOKING_OTHERWISE)}
        assert given.items() >= written.items()
        assert given["spark.executorEnv.NOTE"] == spread
        for flag in ("--files", "--archives"):
            assert command[command.index(flag) + 1] == spread
        assert any(part.startswith("{{7*7}}/apps/") for part in command)
        assert command[command.index("--table") + 1] == "demo.glove.{{7*7}}"
        assert command[command.index("--plan") + 1] == "s3://b/{{ plan }}"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_no_task_of_ours_has_templates_but_those_of_functions(hostile, load_dags, kind):
    dag = load_dags(kind)[f"ann_{kind}_words"]
    for task in dag.tasks:
        assert set(task.template_fields) <= {"templates_dict", "op_args", "op_kwargs"}
        for given in (getattr(task, "op_args", ()), getattr(task, "op_kwargs", {}).values()):
            assert not any(isinstance(value, str) for value in given)


@pytest.mark.parametrize(
    "name", ["u:p@host", "{{7*7}}", "a#b", "a?b=c", "a%zz", "ä", "a/b", "[::", "a:b"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_no_name_of_a_table_takes_the_other_dags_away(declarations, load_dags, kind, name):
    (declarations / "odd.yaml").write_text(f"table: '{name}.{name}.{name}'\ncolumn: embedding\n")
    assert set(load_dags(kind)) == {f"ann_{kind}_words", f"ann_{kind}_odd"}


class TestFailure:
    @pytest.fixture
    def train(self, load_dags) -> StageOperator:
        return load_dags()["ann_build_words"].get_task("train")

    @pytest.fixture
    def failing(self, train, monkeypatch):
        """Execute a stage whose spark-submit is a script that prints a text and ends."""

        def build(hook: SparkSubmitHook, application: str) -> list[str]:
            return ["sh", "-c", application]

        monkeypatch.setattr(SparkSubmitHook, "_build_spark_submit_command", build)

        def run(printed: str, code: int) -> None:
            script = f"echo 'INFO begun'; echo '{printed}' >&2; exit {code}"
            train.submission = replace(train.submission, application=script)
            ti = task_instance("p")
            train.execute({"ti": ti, "run_id": "r"})

        return run

    @pytest.mark.parametrize("code", [2, 3, 5])
    def test_what_another_attempt_would_find_again_fails_for_good_with_its_message(
        self, failing, code
    ):
        with pytest.raises(AirflowFailException) as failed:
            failing("error: 3 vectors are null; mend them", code)
        assert str(failed.value) == "3 vectors are null; mend them"
        assert failed.value.__suppress_context__

    @pytest.mark.parametrize("code", [1, 4, 6, 7])
    def test_anything_else_that_we_say_is_tried_again(self, failing, code):
        with pytest.raises(AirflowException, match=r"^the catalog is silent$") as failed:
            failing("error: the catalog is silent", code)
        assert not isinstance(failed.value, AirflowFailException)

    def test_what_spark_says_is_left_as_it_is(self, failing):
        with pytest.raises(AirflowException, match="Error code is: 2") as failed:
            failing("Exception in thread main", 2)
        assert not isinstance(failed.value, AirflowFailException)

    def test_a_killed_task_kills_what_it_started(self, failing, train, monkeypatch):
        def signalled(hook: SparkSubmitHook, lines: object) -> None:
            train.on_kill()  # as where a signal comes while the command prints

        monkeypatch.setattr(SparkSubmitHook, "_process_spark_submit_log", signalled)
        monkeypatch.setattr(
            SparkSubmitHook,
            "_build_spark_submit_command",
            lambda *_: ["sleep", "60"],  # left alone it ends well
        )
        with pytest.raises(AirflowException, match="Error code is: -9"):
            failing("", 0)

    def test_without_its_connection_nothing_is_submitted(self, train, monkeypatch):
        monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
        monkeypatch.setattr(SparkSubmitHook, "submit", lambda *_: pytest.fail("was submitted"))
        ti = task_instance("p")
        with pytest.raises(AirflowFailException, match="'spark_default'"):
            train.execute({"ti": ti, "run_id": "r"})
