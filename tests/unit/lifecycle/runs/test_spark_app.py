"""The entry points of Spark applications, as spark-submit calls them."""

import sys

import pytest

from puffin_ann.errors import CatalogUnavailableError
from puffin_ann.lifecycle.runs.spark_app import main


class Session:
    """Stands for Spark, which no stage gets as far as needing here."""

    sparkContext = None

    def __init__(self, meanwhile, workers):
        pass

    def stop(self):
        pass


@pytest.mark.parametrize("stage", ["train", "assign", "build_group", "gate"])
def test_an_entry_point_calls_its_stage_with_what_it_was_given(stage, monkeypatch, capsys):
    group = ["--group", "0"] if stage == "build_group" else []
    plan = "file:///nowhere/_ann-staging/words/run/plan.json"
    arguments = ["--table", "nowhere.words.table", "--plan", plan, *group]
    monkeypatch.setattr(sys, "argv", [f"{stage}.py", *arguments])
    monkeypatch.setattr("puffin_ann.lifecycle.runs.spark_app._session", Session)
    with pytest.raises(SystemExit) as left:
        main(stage)
    assert left.value.code == CatalogUnavailableError.exit_code
    assert "nowhere" in capsys.readouterr().err
