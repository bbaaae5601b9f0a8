"""What a process imports: for a DAG file next to nothing, for a search what a search needs."""

import json
import os
import subprocess
import sys

import pytest

from puffin_ann.errors import NotInstalledError
from tests.support.paths import ROOT

LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)))"

BUILD = """
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from puffin_ann.declaration import parse_declaration
from puffin_ann.lifecycle.build import stages
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runs import build, publish
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann import open_index

demo = load_catalog("demo")
demo.create_namespace("glove")
vectors = pa.array([[float(n), float(n % 7)] for n in range(40)], pa.list_(pa.float32()))
rows = pa.table({"embedding": vectors})
demo.create_table("glove.words", schema=rows.schema).append(rows)
fields = {
    "name": "words", "table": "demo.glove.words", "column": "embedding", "metric": "l2",
    "algorithm": "exact", "partitions_per_shard": 2, "recall_target": 0.5,
    "gate": {"queries": 10, "k": 1},
}
planned = build.plan_build(parse_declaration(fields, source="test"), run_id="test")
run = RunRef.planned(planned)
stages.train(InProcess(), run)
stages.assign(InProcess(), run)
for group in planned.groups:
    stages.build_group(InProcess(), run, group)
stages.gate(InProcess(), run)
publish.publish(run)
open_index("demo.glove.words", "words").search([[3.2, 3.0]], 1)
"""

SEARCH = """
from puffin_ann import open_index
found = open_index("demo.glove.words", "words").search([[3.2, 3.0]], 1)
assert found["locator"][0]["row_offset"].as_py() == 3, found
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """The environment of a fresh process: a catalog of its own, the kernels compiled before."""
    folder = tmp_path_factory.mktemp("imports")
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT / "include"),
        "PYICEBERG_CATALOG__DEMO__URI": f"sqlite:///{folder / 'catalog.db'}",
        "PYICEBERG_CATALOG__DEMO__WAREHOUSE": f"file://{folder / 'warehouse'}",
        "PUFFIN_ANN_CACHE_DIR": str(folder / "cache"),
    }


def loaded_after(script: str, environment: dict[str, str]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", script + LOADED],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize(
    "script",
    [
        "import puffin_ann\n",
        "import puffin_ann.errors, puffin_ann.declaration, puffin_ann.settings\n",
    ],
)
def test_what_a_dag_file_imports_is_light(script, environment):
    heavy = {"numpy", "pyarrow", "pyiceberg", "numba", "pandas", "pyspark", "airflow"}
    assert not heavy & packages(loaded_after(script, environment))


def test_a_search_imports_neither_builders_nor_what_only_compiling_needs(environment):
    loaded_after(BUILD, environment)
    found = loaded_after(SEARCH, environment)
    others = {"airflow", "pyspark", "matplotlib", "hnswlib", "boto3", "typer", "faiss", "fsspec"}
    others |= {"pandas", "scipy", "rich", "sqlalchemy", "pyparsing", "pydantic_settings"}
    assert not others & packages(found)
    # What stands for a module that waits has not imported what is in it.
    parts = {"pyarrow._dataset", "yaml.loader", "strictyaml.parser", "puffin_ann.declaration.files"}
    assert not parts & found
    assert "puffin_ann.engines.exact" in found
    assert not {"puffin_ann.engines.vamana", "puffin_ann.engines.ivf_pq"} & found
    assert not {name for name in found if name.startswith("puffin_ann.lifecycle")}
    # What Numba imports before it compiles, but not for kernels that it finds in its cache.
    assert "numba" in found
    assert not {"numba.np.linalg", "numba.typed.typeddict"} & found


def test_searching_an_engine_imports_none_of_its_build(environment):
    found = loaded_after("from puffin_ann.engines import engine\nengine('vamana')\n", environment)
    assert "puffin_ann.ann.vamana.search" in found
    assert not {"puffin_ann.ann.vamana.build", "puffin_ann.ann.vamana.bulk.bulk_build"} & found


WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({absent!r}.split()))  # to import them fails
"""
"""What a process runs first in which packages are not installed."""

OPTIONAL = "airflow boto3 botocore hnswlib py4j pyspark thrift typer"

TOLD = """
from puffin_ann.errors import NotInstalledError
try:
    {statement}
except NotInstalledError as error:
    print(error, file=sys.stderr)
"""


def told_without(package: str, statement: str, environment: dict[str, str]) -> str:
    script = WITHOUT.format(absent=package) + TOLD.format(statement=statement)
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, NotInstalledError.exit_code), done.stderr
    return done.stderr


def test_a_build_and_a_search_need_none_of_what_extras_bring(environment, tmp_path):
    without = WITHOUT.format(absent=OPTIONAL)
    own = {
        **environment,
        "PYICEBERG_CATALOG__DEMO__URI": f"sqlite:///{tmp_path / 'catalog.db'}",
        "PYICEBERG_CATALOG__DEMO__WAREHOUSE": f"file://{tmp_path / 'warehouse'}",
    }
    loaded_after(without + BUILD, own)
    loaded_after(without + SEARCH, own)


@pytest.mark.parametrize(
    ("extra", "package", "statement"),
    [
        ("airflow", "airflow", "import puffin_ann.airflow"),
        ("cli", "typer", "import puffin_ann.cli.main as cli; sys.argv = ['puffin-ann']; cli.run()"),
        (
            "s3",
            "boto3",
            "from puffin_ann.lake.store.s3 import S3; S3({'s3.endpoint': '127.0.0.1'}).client",
        ),
        (
            "hnsw",
            "hnswlib",
            "from puffin_ann.ann.hnsw.hnswlib_index import _index; _index(8, False).__enter__()",
        ),
        (
            "glue",
            "boto3",
            "from puffin_ann import open_index; open_index('glue.ns.words', 'words')",
        ),
        (
            "hive",
            "thrift",
            "from puffin_ann import open_index; open_index('hive.ns.words', 'words')",
        ),
    ],
)
def test_an_error_that_an_extra_would_cure_names_the_extra(extra, package, statement, environment):
    catalogs = {
        "PYICEBERG_CATALOG__GLUE__TYPE": "glue",
        "PYICEBERG_CATALOG__HIVE__URI": "thrift://127.0.0.1:1",
    }
    told = told_without(package, statement, {**environment, **catalogs})
    assert f"pip install 'puffin-ann[{extra}]'" in told
    assert "Traceback" not in told
