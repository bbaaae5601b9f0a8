"""The recipes of docs/submit.md: Python that hands all of a submission to some operator."""

import re
import runpy
import sys
from types import ModuleType

import pytest

from puffin_ann.airflow import index_dags
from puffin_ann.airflow.submit.submission import Submission
from puffin_ann.declaration import SparkOptions
from tests.support.paths import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "submit.md").read_text(), re.S)
RECIPES = [re.search(r"^def (\w+)\(", block, re.M)[1] for block in BLOCKS]


class Operators(ModuleType):
    """A module of a provider that is not installed: any operator of it is what it is given."""

    __path__ = ()

    def __getattr__(self, name: str):
        if not name.endswith("Operator"):
            raise AttributeError(name)
        return lambda **given: given


@pytest.fixture
def providers(monkeypatch):
    for block in BLOCKS:
        (module,) = re.findall(r"from (airflow\.providers\.\S+) import", block)
        parts = module.split(".")
        for length in range(3, len(parts) + 1):
            name = ".".join(parts[:length])
            if name not in sys.modules or length == len(parts):
                monkeypatch.setitem(sys.modules, name, Operators(name))


@pytest.mark.parametrize(("name", "block"), zip(RECIPES, BLOCKS, strict=True), ids=RECIPES)
def test_a_recipe_hands_over_all_of_a_submission(providers, declarations, tmp_path, name, block):
    (tmp_path / "recipe.py").write_text(block)
    recipe = runpy.run_path(str(tmp_path / "recipe.py"))
    spark = SparkOptions(submit="x", conn_id="elsewhere", conf={"spark.a": "b"}, env={"C": "d"})
    submission = Submission("words.train", "s3://apps/train.py", spark, ("--plan", "s3://b/plan"))
    given = recipe[name](submission)
    assert given["task_id"] == "submit"
    told = repr(given)
    for part in ("elsewhere", submission.application, "s3://b/plan", "spark.a", "'d'"):
        assert part in told
    assert index_dags(["build"], submit={"theirs": recipe[name]})
