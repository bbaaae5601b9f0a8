"""What a declaration says of Spark and of Airflow's tasks: checked once, and never stored."""

import pytest

from puffin_ann.declaration import SparkOptions, load_declaration, parse_declaration
from puffin_ann.declaration.json_schema import declaration_schema
from puffin_ann.errors import DeclarationError
from puffin_ann.settings import settings

SMALLEST = {"name": "n", "table": "c.n.t", "column": "v"}


def spark(**given: object):
    return parse_declaration({**SMALLEST, "spark": given}, source="f").spark


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"submit": "my.module:make"}, "'spark.submit': 'my.module:make' is not allowed"),
        ({"deploy_mode": "remote"}, "'client' or 'cluster'"),
        ({"files": ["a,b"]}, "'spark.files.0'"),
        ({"files": "a"}, "'spark.files'"),
        ({"env": {"A B": "c"}}, "'spark.env.A B"),
        ({"applications": ""}, "'spark.applications'"),
        ({"files": ["a"], "conf": {"spark.files": "b"}}, "'spark.files' is set by a field and by"),
        ({"env": {"A": 1}, "conf": {"spark.executorEnv.A": "b"}}, "'spark.executorEnv.A' is set"),
        (
            {"deploy_mode": "client", "conf": {"spark.submit.deployMode": "cluster"}},
            "set 'deploy_mode', and not",
        ),
        ({"submit": "livy", "deploy_mode": "cluster"}, "Livy's own configuration"),
        ({"queue": "a"}, "known fields of 'spark' are: submit, conn_id, deploy_mode"),
    ],
)
def test_what_is_not_allowed_is_told_by_field(given, said):
    with pytest.raises(DeclarationError) as refused:
        spark(**given)
    assert said in str(refused.value)


def test_all_that_spark_has_a_setting_for_can_be_had_as_one():
    found = spark(
        conf={"spark.a": 1}, env={"A": 2}, files=["f", "g"], py_files=["p"], archives=["x#y"]
    )
    assert found.as_conf() == {
        "spark.a": "1",
        "spark.executorEnv.A": "2",
        "spark.files": "f,g",
        "spark.submit.pyFiles": "p",
        "spark.archives": "x#y",
    }


def test_a_secret_among_the_variables_is_warned_of():
    declaration = parse_declaration(
        {**SMALLEST, "spark": {"env": {"STORE_PASSWORD": "x", "HOME": "/h"}}}, source="f"
    )
    assert [warning.count("'env.STORE_PASSWORD'") for warning in declaration.warnings] == [1]


def test_secrets_are_known_in_every_text_that_spark_is_given():
    spark = SparkOptions(
        conf={"spark.a.token": "t", "spark.b": "-Dc.password=d", "spark.e.token": "${env.E}"},
        env={"NOTE": "https://u:p@h"},
        files=("https://u:p@h/f", "/etc/plain"),
        py_files=("https://h/p?token=x",),
        archives=("https://u:p@h/z#e",),
        applications="https://u:p@h/apps",
    )
    assert spark.secrets == (
        *("spark.a.token", "spark.b", "env.NOTE", "files", "py_files", "archives"),
        "applications",
    )
    assert spark.secret_values == (
        *("t", "-Dc.password=d", "https://u:p@h", "https://u:p@h/f", "https://h/p?token=x"),
        *("https://u:p@h/z#e", "https://u:p@h/apps"),
    )


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("archives: [a]", "spark.archives"),
        ("py_files: [a]", "spark.submit.pyFiles"),
        ("files: [a]", "spark.files"),
        ("deploy_mode: cluster", "spark.submit.deployMode"),
        ("applications: /a", "spark.applications"),
        ("env: {A: b}", "spark.driverEnv.A"),
    ],
)
def test_fields_are_held_to_the_list_of_settings_that_may_be_made(
    tmp_path, monkeypatch, given, name
):
    path = tmp_path / "words.yaml"
    path.write_text(f"table: demo.glove.words\ncolumn: e\nspark: {{{given}}}\n")
    monkeypatch.setenv("PUFFIN_ANN_SPARK_CONF_ALLOWED", "spark.executor*")
    settings.cache_clear()
    with pytest.raises(DeclarationError, match=name):
        load_declaration(path)
    monkeypatch.setenv("PUFFIN_ANN_SPARK_CONF_ALLOWED", f"spark.executor* {name}")
    settings.cache_clear()
    load_declaration(path)


@pytest.mark.parametrize(("allowed", "is_allowed"), [("livy,emr", True), ("spark_submit", False)])
def test_a_machine_says_what_may_submit(tmp_path, monkeypatch, allowed, is_allowed):
    path = tmp_path / "words.yaml"
    path.write_text("table: demo.glove.words\ncolumn: e\nspark: {submit: livy}\n")
    monkeypatch.setenv("PUFFIN_ANN_SUBMIT_ALLOWED", allowed)
    settings.cache_clear()
    if is_allowed:
        assert load_declaration(path).spark.submit == "livy"
        return
    with pytest.raises(DeclarationError, match=r"'livy'.*PUFFIN_ANN_SUBMIT_ALLOWED"):
        load_declaration(path)


@pytest.fixture(autouse=True)
def _fresh_settings():
    yield
    settings.cache_clear()


@pytest.mark.parametrize("section", ["spark", "airflow"])
def test_what_is_of_one_installation_is_not_stored_and_survives_what_a_run_overrides(section):
    given = {"spark": {"submit": "emr"}, "airflow": {"pool": "words", "retries": 0}}
    declaration = parse_declaration({**SMALLEST, **given}, source="f")
    assert section not in declaration.model_dump()
    overridden = declaration.overridden({"shards": 2})
    assert getattr(overridden, section) == getattr(declaration, section)


def test_editors_learn_of_the_fields():
    definitions = declaration_schema()["$defs"]
    assert definitions["SparkOptions"]["properties"]["submit"]["default"] == "spark_submit"
    assert {"pool", "timeout", "tags"} <= definitions["AirflowOptions"]["properties"].keys()
