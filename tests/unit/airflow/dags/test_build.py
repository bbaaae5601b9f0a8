"""The build DAGs: which there are, what they are made of, what their forms accept."""

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from puffin_ann.declaration import MAX_GROUPS
from puffin_ann.errors import RecallTooLowError, TooFewRowsError

PLAN = "file:///words/metadata/_ann-staging/words/run/plan.json"
ORDER = [
    "lease",
    "plan",
    "deal_groups",
    "train",
    "assign",
    "build_shards",
    "gate",
    "publish",
    "report",
    "release",
]


@pytest.fixture
def dag(load_dags) -> DAG:
    return load_dags()["ann_build_words"]


def test_a_second_declaration_makes_a_second_dag(declarations, load_dags):
    assert set(load_dags()) == {"ann_build_words"}
    text = (declarations / "words.yaml").read_text()
    (declarations / "names.yml").write_text(text.replace("glove.words", "glove.names"))
    assert set(load_dags()) == {"ann_build_words", "ann_build_names"}


def test_no_declaration_makes_no_dag(declarations, load_dags):
    (declarations / "words.yaml").unlink()
    assert load_dags() == {}


def test_the_tasks_stand_in_the_order_of_the_stages(dag):
    assert {task.task_id for task in dag.tasks} == set(ORDER)
    for earlier, later in pairwise(ORDER):
        assert later in dag.get_task(earlier).downstream_task_ids


def test_only_the_groups_of_shards_are_mapped_tasks(dag):
    mapped = {task.task_id for task in dag.tasks if isinstance(task, MappedOperator)}
    assert mapped == {"build_shards"}


def test_every_task_is_tried_again_and_runs_never_overlap(dag):
    assert all(task.retries >= 1 for task in dag.tasks)
    assert dag.max_active_runs == 1
    assert dag.catchup is False


def test_spark_finds_the_applications(dag):
    for name in ("train", "assign", "gate"):
        task = dag.get_task(name)
        assert Path(task.submission.application).is_file()
    mapped = dag.get_task("build_shards").partial_kwargs
    assert Path(mapped["submission"].application).is_file()


def test_executors_learn_where_the_catalog_is_described_but_not_its_secrets(load_dags, monkeypatch):
    monkeypatch.setenv("PYICEBERG_HOME", "/etc/iceberg")
    monkeypatch.setenv("PYICEBERG_CATALOG__DEMO__S3__SECRET_ACCESS_KEY", "hidden")
    dag = load_dags()["ann_build_words"]
    stages = [dag.get_task(name).submission for name in ("train", "assign", "gate")]
    stages.append(dag.get_task("build_shards").partial_kwargs["submission"])
    conf = [stage.spark.conf for stage in stages]
    for argument in conf:
        assert argument["spark.executorEnv.PYICEBERG_HOME"] == "/etc/iceberg"
        assert "hidden" not in json.dumps(argument)


def test_the_schedule_is_the_declared_one(declarations, load_dags):
    assert load_dags()["ann_build_words"].schedule is None
    with (declarations / "words.yaml").open("a") as out:
        out.write("schedule: '0 3 * * *'\n")
    assert load_dags()["ann_build_words"].schedule == "0 3 * * *"


def validated(dag: DAG, name: str, value: object) -> dict[str, object]:
    """Return the values of a run that a person set one field for, as Airflow validates them."""
    dag.params[name] = value
    return dag.params.validate()


class TestForm:
    def test_it_offers_what_is_declared(self, dag):
        values = dag.params.dump()
        assert values["shards"] == 2
        assert values["partitions_per_shard"] == 4
        assert values["recall_target"] == 0.9
        assert (values["R"], values["L"]) == (32, 64)
        assert values["force"] is False

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("shards", 0),
            ("shards", 10_001),
            ("shards", "two"),
            ("shards", 1.5),
            ("shards", None),
            ("partitions_per_shard", 0),
            ("partitions_per_shard", 4097),
            ("recall_target", 0.49),
            ("recall_target", 2),
            ("R", 3),
            ("R", 513),
            ("L", 7),
            ("L", 2001),
            ("alpha", 0.99),
            ("alpha", 2.1),
            ("pq_m", 0),
            ("pq_m", "many"),
            ("pq_m", 4097),
            ("beam", "bogus"),
            ("beam", None),
            ("force", "yes"),
        ],
    )
    def test_it_refuses_what_the_declaration_would(self, dag, name, value):
        with pytest.raises(ParamValidationError, match=name):
            validated(dag, name, value)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("shards", 1),
            ("shards", 10_000),
            ("recall_target", 1),
            ("recall_target", 0.5),
            ("R", 4),
            ("alpha", 2),
            ("pq_m", None),
            ("pq_m", 25),
            ("beam", "pq"),
            ("force", True),
        ],
    )
    def test_it_accepts_the_bounds_themselves(self, dag, name, value):
        assert validated(dag, name, value)[name] == value

    def test_it_offers_the_one_value_that_a_parameter_can_have(self, declarations, load_dags):
        text = (declarations / "words.yaml").read_text()
        text = text.replace("vamana", "ivf_pq").replace("parameters: {R: 32, L: 64}\n", "")
        (declarations / "words.yaml").write_text(text)
        dag = load_dags()["ann_build_words"]
        assert validated(dag, "pq_nbits", 4)["pq_nbits"] == 4
        with pytest.raises(ParamValidationError, match="pq_nbits"):
            validated(dag, "pq_nbits", 8)

    def test_an_algorithm_without_parameters_adds_no_field(self, declarations, load_dags):
        text = (declarations / "words.yaml").read_text()
        text = text.replace("vamana", "exact").replace("parameters: {R: 32, L: 64}\n", "")
        (declarations / "words.yaml").write_text(text)
        values = load_dags()["ann_build_words"].params.dump()
        assert set(values) == {"shards", "partitions_per_shard", "recall_target", "force"}

    def test_every_field_that_is_offered_can_be_set_for_a_run(self, dag, declarations):
        from puffin_ann.declaration import load_declaration

        values = dag.params.dump()
        del values["force"]
        declared = load_declaration(declarations / "words.yaml")
        assert declared.overridden(values) == declared


def test_the_parse_of_a_task_builds_its_own_dag_only(declarations, load_dags, monkeypatch):
    text = (declarations / "words.yaml").read_text()
    (declarations / "names.yaml").write_text(text)
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "ann_build_names")
    assert set(load_dags()) == {"ann_build_names"}


@pytest.mark.parametrize("kind", ["build", "refresh", "maintain", "evaluate"])
def test_a_table_may_have_a_long_name(declarations, load_dags, kind):
    text = (declarations / "words.yaml").read_text()
    long = text.replace("demo.glove.words", "demo.glove." + 989 * "w")
    assert long != text
    (declarations / "long.yaml").write_text(long)
    assert set(load_dags(kind)) == {f"ann_{kind}_words", f"ann_{kind}_long"}


def test_what_the_plan_hands_on_is_small_however_large_the_index():
    from puffin_ann.lifecycle.build.plan import shard_groups
    from puffin_ann.lifecycle.documents.run import PlanPointer

    pointer = PlanPointer(
        action="build",
        reason="a build is required",
        table="catalog.namespace." + "t" * 100,
        plan="s3://bucket/" + "p" * 400,
        run_id="r" * 70,
        groups=list(shard_groups(10_000, MAX_GROUPS)),
    )
    assert len(pointer.groups) <= 100
    assert len(json.dumps(pointer.model_dump())) < 2000


PARAMS = {"shards": 2, "force": False}


def test_input_that_no_retry_can_mend_fails_the_run_at_once(dag, called):
    with pytest.raises(AirflowFailException, match=r"'shards': 0 is not allowed"):
        called(dag.get_task("plan"), {"run_id": "run", "params": {"shards": 0}})


def test_values_that_the_form_does_not_have_are_refused_by_name(dag, called):
    context = {"run_id": "run", "params": {**PARAMS, "shrads": 3}}
    with pytest.raises(AirflowFailException, match=r"'shrads'.*it has: shards, partitions_per"):
        called(dag.get_task("plan"), context)


def test_what_airflow_itself_adds_to_the_values_of_a_run_is_passed_over(dag, called, monkeypatch):
    from puffin_ann.lifecycle.runs import build

    given = []
    monkeypatch.setattr(
        "puffin_ann.lifecycle.runs.build.plan_build",
        lambda declaration, **options: given.append(options) or build.nothing(declaration, "why"),
    )
    called(dag.get_task("plan"), {"run_id": "run", "params": {**PARAMS, "openlineage": {}}})
    assert given == [{"run_id": "run", "overrides": PARAMS}]


def test_a_table_without_rows_ends_the_run_with_the_reason_and_fails_nothing(
    dag, called, monkeypatch, capsys
):
    def empty(*_, **__):
        raise TooFewRowsError("table demo.glove.words has no live rows")

    monkeypatch.setattr("puffin_ann.lifecycle.runs.build.plan_build", empty)
    monkeypatch.setattr("puffin_ann.lifecycle.runs.publish.report", lambda planned: "no index")
    told = {}
    ti = SimpleNamespace(xcom_push=lambda key, value: told.update({key: value}))
    planned = called(dag.get_task("plan"), {"run_id": "run", "params": PARAMS, "ti": ti})
    assert told == {"reason": "table demo.glove.words has no live rows"}
    assert called(dag.get_task("deal_groups"), {}, planned) == []
    called(dag.get_task("report"), {}, planned)
    assert "no live rows" in capsys.readouterr().out


def test_a_recall_under_the_target_fails_the_run_once_and_for_good(dag, monkeypatch):
    def refused(*_):
        raise RecallTooLowError("recall@10 is 0.5; nothing was published")

    monkeypatch.setattr("puffin_ann.lifecycle.runs.publish.publish", refused)
    ti = SimpleNamespace(xcom_pull=lambda task_ids: {"table": "t", "plan": PLAN})
    with pytest.raises(AirflowFailException, match="nothing was published"):
        dag.get_task("publish").execute({"ti": ti})
