"""What loading costs and imports: the scheduler parses DAG files over and over."""

import ast
from pathlib import Path

import pytest

from tests.support.params import long_but_first
from tests.support.paths import ROOT

HEAVY = {"pyspark", "numba", "numpy", "pandas", "pyarrow", "pyiceberg", "hnswlib", "scipy"}
LIBRARY = ROOT / "include" / "puffin_ann"
PLUGIN = "puffin_ann.airflow.page.plugin"
TELL = "puffin_ann.airflow.state.tell"
ELSEWHERE = (
    "puffin_ann.airflow.triggers.",
    "puffin_ann.airflow.page.",
    "puffin_ann.airflow.state.",
)
"""What the triggerer, the API server and tasks alone import: they need PyIceberg and FastAPI."""

USED = sorted(path for folder in ("dags", "plugins") for path in (ROOT / folder).glob("*.py"))
FILES = [*USED, *sorted((LIBRARY / "airflow").rglob("*.py"))]
MODULES = [
    ".".join(path.relative_to(LIBRARY.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in FILES
    if path not in USED
]
DAG_FILE = ROOT / "dags" / "vector_indexes.py"
KINDS = ("build", "refresh", "maintain", "evaluate")

LOAD_WITH_AIRFLOW = """
import json, sys
from airflow.dag_processing.dagbag import BundleDagBag
bag = BundleDagBag(sys.argv[1], bundle_path=sys.argv[1], bundle_name="dags-folder")
print(json.dumps({
    "errors": bag.import_errors, "dags": sorted(bag.dags), "warnings": sorted(bag.captured_warnings)
}))
"""

IMPORTED = """
import importlib.util, json, sys
import pydantic
import airflow.sdk, airflow.plugins_manager
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
before = set(sys.modules)
for what in sys.argv[1:]:
    if what.endswith(".py"):
        spec = importlib.util.spec_from_file_location("measured", what)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    else:
        importlib.import_module(what)
print(json.dumps({"imported": sorted(set(sys.modules) - before)}))
"""


@pytest.mark.slow
def test_airflow_loads_every_dag_file_without_an_error(in_new_process):
    found = in_new_process(LOAD_WITH_AIRFLOW, ROOT / "dags")
    assert found["errors"] == {}
    assert found["warnings"] == []
    for kind in KINDS:
        assert f"ann_{kind}_glove_words" in found["dags"]


@pytest.mark.slow
@pytest.mark.parametrize("path", USED, ids=lambda path: path.name)
def test_a_dag_or_plugin_file_imports_nothing_heavy(path, in_new_process):
    found = in_new_process(IMPORTED, path)
    assert HEAVY & {name.split(".")[0] for name in found["imported"]} == set()


@pytest.mark.slow
def test_nothing_that_dag_files_or_plugins_may_import_imports_anything_heavy(in_new_process):
    light = [name for name in MODULES if name in (PLUGIN, TELL) or not name.startswith(ELSEWHERE)]
    assert "puffin_ann.airflow.sensors" in light
    found = in_new_process(IMPORTED, *light)
    assert HEAVY & {name.split(".")[0] for name in found["imported"]} == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_heavy_import_stands_at_the_top_of_a_file(path):
    assert HEAVY & imported_at_the_top(path) == set()


def imported_at_the_top(path: Path) -> set[str]:
    """Return the packages that a file imports outside functions and `if TYPE_CHECKING`."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
        waiting.extend(ast.iter_child_nodes(node))
    return found


def test_the_check_for_imports_sees_those_in_classes_and_branches(tmp_path):
    file = tmp_path / "file.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import pandas\nelse:\n    import numba.core\n"
        "class A:\n    from pyspark import sql\n"
        "def f():\n    import numpy\n"
    )
    assert HEAVY & imported_at_the_top(file) == {"numba", "pyspark"}


PARSE_MANY = """
import json, sys, time
from pathlib import Path
from airflow.dag_processing.dagbag import BundleDagBag
import airflow.providers.apache.spark.operators.spark_submit
import airflow.providers.standard.operators.empty
import airflow.providers.standard.operators.trigger_dagrun

def load(path):
    return BundleDagBag(path, bundle_path=Path(path).parent, bundle_name="dags-folder").dags

# Of this process alone: how busy the machine is besides says nothing of the file.
def timed(path):
    began = time.process_time()
    dags = list(load(path).values())
    return dags, time.process_time() - began

ours, plain = sys.argv[1:]
dags, seconds = timed(ours)
peers, peer_seconds = timed(plain)
assert len(peers) == 800 and sum(len(dag.tasks) for dag in peers) == 800 * 9
print(json.dumps({"ratio": seconds / peer_seconds, "dags": len(dags)}))
"""

PLAIN = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

for number in range(800):
    with DAG(dag_id=f"plain_{number}", schedule="@daily") as dag:
        tasks = [EmptyOperator(task_id=f"task_{task}") for task in range(9)]
        for before, after in zip(tasks, tasks[1:]):
            before >> after
    globals()[dag.dag_id] = dag
"""
"""As many DAGs as 200 declarations have, of tasks that do nothing."""


@pytest.fixture
def plain(tmp_path) -> Path:
    path = tmp_path / "plain.py"
    path.write_text(PLAIN)
    return path


@pytest.fixture
def two_hundred(declarations) -> Path:
    text = (declarations / "words.yaml").read_text()
    for number in range(199):
        (declarations / f"words_{number:03d}.yaml").write_text(text)
    return declarations


@pytest.mark.slow
@pytest.mark.long
def test_two_hundred_declarations_parse_in_three_times_what_airflow_takes_alone(
    two_hundred, plain, in_new_process
):
    found = in_new_process(PARSE_MANY, DAG_FILE, plain)
    assert found["dags"] == 4 * 200 + 1
    assert found["ratio"] < 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", long_but_first(KINDS))
def test_the_parse_of_a_task_builds_its_own_dag_only(kind, two_hundred, plain, in_new_process):
    found = in_new_process(
        PARSE_MANY, DAG_FILE, plain, _AIRFLOW_PARSING_CONTEXT_DAG_ID=f"ann_{kind}_words_007"
    )
    assert found["dags"] == 1
    assert found["ratio"] < 0.5
