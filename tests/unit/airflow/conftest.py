"""An Airflow home of the test session: tests neither read nor write the user's own."""

import importlib.util
import inspect
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from puffin_ann.settings import settings
from tests.support.paths import ROOT

# Airflow reads its home when it is imported, which is before any fixture runs.
_home = tempfile.TemporaryDirectory(prefix="puffin-ann-airflow-")
os.environ["AIRFLOW_HOME"] = _home.name
os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(ROOT / "dags")
os.environ["AIRFLOW__CORE__PLUGINS_FOLDER"] = str(ROOT / "plugins")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

DECLARATION = """\
table: demo.glove.words
column: embedding
key: word
metric: cosine
algorithm: vamana
parameters: {R: 32, L: 64}
shards: 2
partitions_per_shard: 4
recall_target: 0.9
"""


@pytest.fixture
def declarations(tmp_path, monkeypatch) -> Path:
    """A folder with one declaration, `words.yaml`, that DAG files read."""
    folder = tmp_path / "indexes"
    folder.mkdir()
    (folder / "words.yaml").write_text(DECLARATION)
    monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", str(folder))
    master = {"conn_type": "spark", "host": "local[1]"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(master))
    settings.cache_clear()
    yield folder
    settings.cache_clear()


@pytest.fixture
def load_dags(declarations):
    """Execute the DAG file as Airflow does; returns the DAGs of a kind, by id."""
    from airflow.sdk import DAG

    def load(kind: str = "build") -> dict[str, DAG]:
        module = execute(ROOT / "dags" / "vector_indexes.py")
        found = [value for value in vars(module).values() if isinstance(value, DAG)]
        return {dag.dag_id: dag for dag in found if dag.dag_id.startswith(f"ann_{kind}_")}

    return load


@pytest.fixture
def called(monkeypatch):
    """Call the function of a task as a run does, with a context; Spark's commands are there."""
    monkeypatch.setattr("puffin_ann.lifecycle.spark.session.require_spark", lambda: None)

    def call(task, context: dict[str, object], *arguments: object) -> object:
        context.setdefault("ti", SimpleNamespace(xcom_push=lambda **_: None))
        function = inspect.unwrap(task.python_callable)
        monkeypatch.setitem(function.__globals__, "get_current_context", lambda: context)
        return task.python_callable(*arguments)

    return call


def execute(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tested_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def in_new_process():
    """Run a Python program in its own process; returns the JSON of the last line it prints."""
    return _in_new_process


def _in_new_process(program: str, *arguments: object, **variables: str) -> object:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
