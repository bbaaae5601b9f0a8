"""Why an application failed, told to a task that does not see what it prints."""

import sys

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from puffin_ann.errors import BadInputError, CatalogUnavailableError, StagingGoneError
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runs.last_words import last_words, leave_last_words
from puffin_ann.lifecycle.runs.spark_app import main
from puffin_ann.lifecycle.runtime.workspace import workspaces_for
from tests.unit.lifecycle.runs.test_spark_app import Session

NAME = "demo.glove.words"


@pytest.fixture
def table(known_catalogs, tmp_path) -> Table:
    places = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    known_catalogs("demo", type="sql", **places)
    catalog = load_catalog("demo")
    catalog.create_namespace("glove")
    return catalog.create_table("glove.words", schema=pa.schema([("id", pa.int64())]))


@pytest.fixture
def plan(table) -> str:
    return RunRef.on(table, "words", "run").plan


def test_what_an_attempt_left_is_found_under_its_name_alone(plan):
    leave_last_words(NAME, plan, "train.-1.1", BadInputError("3 vectors are null"))
    found = last_words(NAME, plan, "train.-1.1")
    assert found is not None
    assert (found.message, found.exit_code) == ("3 vectors are null", 2)
    assert last_words(NAME, plan, "train.-1.2") is None


def test_an_application_leaves_the_error_that_it_prints(plan, monkeypatch, capsys):
    arguments = ["--table", NAME, "--plan", plan, "--attempt", "train.-1.1"]
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    monkeypatch.setattr("puffin_ann.lifecycle.runs.spark_app._session", Session)
    with pytest.raises(SystemExit) as left:
        main("train")
    found = last_words(NAME, plan, "train.-1.1")
    assert found is not None
    assert found.exit_code == left.value.code == StagingGoneError.exit_code
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {found.message}"


def test_they_do_not_count_as_work_of_the_run(table, plan):
    leave_last_words(NAME, plan, "train.-1.1", BadInputError("no"))
    workspace, is_planned = next(workspaces_for(table, "words", "run"))
    assert (workspace.run.run_id, is_planned) == ("run", False)


@pytest.mark.parametrize("plan", ["nowhere", "file:///x/_ann-staging/words/run/plan.json"])
def test_where_they_cannot_be_left_the_error_is_printed_all_the_same(known_catalogs, plan):
    known_catalogs("absent")
    leave_last_words("nowhere.glove.words", plan, "a", CatalogUnavailableError("it is silent"))
