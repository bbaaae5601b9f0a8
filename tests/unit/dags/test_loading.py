"""What loading costs and imports: the scheduler parses DAG files over and over."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DAG_FILE = ROOT / "dags" / "ann_build.py"
HEAVY = {"pyspark", "numba", "numpy", "pandas", "pyarrow", "pyiceberg", "hnswlib", "scipy"}
FILES = sorted([*(ROOT / "dags").glob("*.py"), *(ROOT / "plugins").glob("*.py")])

LOAD_WITH_AIRFLOW = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
print(json.dumps({
    "errors": bag.import_errors, "dags": sorted(bag.dags), "warnings": sorted(bag.captured_warnings)
}))
"""

MEASURE = """
import importlib.util, json, sys, time
import pydantic, pydantic_settings
import airflow.sdk, airflow.plugins_manager
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
before = set(sys.modules)
spec = importlib.util.spec_from_file_location("measured", sys.argv[1])
module = importlib.util.module_from_spec(spec)
began = time.perf_counter()
spec.loader.exec_module(module)
seconds = time.perf_counter() - began
print(json.dumps({"seconds": seconds, "imported": sorted(set(sys.modules) - before)}))
"""


@pytest.mark.slow
def test_airflow_loads_every_dag_file_without_an_error(in_new_process):
    found = in_new_process(LOAD_WITH_AIRFLOW, ROOT / "dags")
    assert found["errors"] == {}
    assert found["warnings"] == []
    assert "ann_build_glove_words" in found["dags"]


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_dag_or_plugin_file_loads_fast_and_imports_nothing_heavy(path, in_new_process):
    found = in_new_process(MEASURE, path)
    assert found["seconds"] < 0.5
    assert HEAVY & {name.split(".")[0] for name in found["imported"]} == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_heavy_import_stands_at_the_top_of_a_dag_or_plugin_file(path):
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
from airflow.dag_processing.dagbag import DagBag
import airflow.providers.apache.spark.operators.spark_submit
began = time.perf_counter()
bag = DagBag(sys.argv[1])
print(json.dumps({"seconds": time.perf_counter() - began, "dags": len(bag.dags)}))
"""


@pytest.fixture
def two_hundred(declarations) -> Path:
    text = (declarations / "words.yaml").read_text()
    for number in range(199):
        (declarations / f"words_{number:03d}.yaml").write_text(text)
    return declarations


@pytest.mark.slow
def test_two_hundred_declarations_parse_in_three_seconds(two_hundred, in_new_process):
    found = in_new_process(PARSE_MANY, DAG_FILE)
    assert found["dags"] == 200
    assert found["seconds"] < 3


@pytest.mark.slow
def test_the_parse_of_a_task_builds_its_own_dag_only(two_hundred, in_new_process):
    found = in_new_process(
        PARSE_MANY, DAG_FILE, _AIRFLOW_PARSING_CONTEXT_DAG_ID="ann_build_words_007"
    )
    assert found["dags"] == 1
    assert found["seconds"] < 1
