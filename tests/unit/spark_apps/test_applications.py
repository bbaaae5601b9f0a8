"""The Spark applications: one for each stage, in the library and beside it."""

from importlib import import_module
from runpy import run_path
from typing import get_args

import pytest

from puffin_ann.lifecycle.runs.spark_app import PACKAGES
from puffin_ann.spark_apps import Stage, application
from tests.support.paths import ROOT

STAGES = get_args(Stage)
FOLDERS = (application("train").parent, ROOT / "spark_apps")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_each_stage_has_an_application_and_each_application_a_stage(folder):
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == set(STAGES)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
@pytest.mark.parametrize("stage", STAGES)
def test_an_application_runs_the_stage_of_its_name(folder, stage, monkeypatch, capsys):
    assert callable(getattr(import_module(f"puffin_ann.lifecycle.{PACKAGES[stage]}.stages"), stage))
    path = folder / f"{stage}.py"
    monkeypatch.setattr("sys.argv", [str(path), "--help"])
    with pytest.raises(SystemExit):
        run_path(str(path), run_name="__main__")
    assert f"Run the stage '{stage}'" in capsys.readouterr().out
