"""What `puffin-ann compile` made is all that builds, refreshes and searches need."""

import importlib
import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from puffin_ann.cli.app import app
from puffin_ann.compilation.compile import NATIVE, compile_kernels
from puffin_ann.errors import BadInputError, CacheUnusableError
from puffin_ann.kernel_cache import numba_cache
from puffin_ann.kernel_cache.kernel_files import SUFFIX
from tests.support.paths import ROOT

USE = """
import sys
import numpy as np
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from puffin_ann import open_index
from puffin_ann.declaration import parse_declaration
from puffin_ann.kernel_cache import numba_cache
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from tests.support.paths import SAMPLE

algorithm, metric, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
data = pq.read_table(SAMPLE)
catalog = load_catalog("demo")
catalog.create_namespace("glove")
table = catalog.create_table("glove.words", schema=data.schema)
table.append(data.slice(0, rows))
declared = parse_declaration(
    {"name": "words", "table": "demo.glove.words", "column": "embedding", "key": "word",
     "metric": metric, "algorithm": algorithm, "recall_target": 0.5},
    source="test",
)
queries = np.asarray(data["embedding"].slice(rows, 5).to_pylist(), np.float32)

def search():
    index = open_index(table.refresh(), "words")
    index.search(queries, 10, columns=["word"])
    index.search(queries[0], 10)
    index.search(queries, 10, exhaustive=True)
    index.within(queries, 0.9)

refresh_in_process(declared, run_id="build")
search()
for step, added in enumerate((20, rows // 8)):
    table.append(data.slice(rows * (step + 2), added))
    table.delete(f"word == '{data['word'][step]}'")
    search()
    refresh_in_process(declared, run_id=f"refresh-{step}", force=True)
    search()
missed = {
    f"{kernel.py_func.__module__}.{kernel.py_func.__name__}{types}"
    for kernel in numba_cache.kernels
    for types in kernel.stats.cache_misses
}
assert not missed, missed
"""


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    """What `make setup` has done before: then this takes no time."""
    compile_kernels([NATIVE])


@pytest.mark.parametrize(
    ("algorithm", "metric", "rows"),
    [
        ("vamana", "cosine", 5000),  # in bulk
        pytest.param("hnsw", "cosine", 1500, marks=pytest.mark.long),
        pytest.param("vamana", "ip", 1500, marks=pytest.mark.long),
        pytest.param("ivf_pq", "l2", 1500, marks=pytest.mark.long),
        pytest.param("exact", "l2", 1500, marks=pytest.mark.long),
        pytest.param("centroid", "ip", 1500, marks=pytest.mark.long),
        pytest.param("auto", "l2", 4500, marks=pytest.mark.long),
    ],
)
def test_no_use_of_an_index_waits_for_the_compiler(tmp_path, algorithm, metric, rows):
    (tmp_path / "warehouse").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", USE, algorithm, metric, str(rows)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "NUMBA_CACHE_DIR": str(tmp_path / "kernels"),
            "PUFFIN_ANN_CACHE_DIR": str(tmp_path / "cache"),
            "PYICEBERG_CATALOG__DEMO__TYPE": "sql",
            "PYICEBERG_CATALOG__DEMO__URI": f"sqlite:///{tmp_path}/catalog.db",
            "PYICEBERG_CATALOG__DEMO__WAREHOUSE": f"file://{tmp_path}/warehouse",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_every_kernel_is_compiled():
    for module in (ROOT / "include" / "puffin_ann").rglob("*kernels*.py"):
        name = ".".join(module.relative_to(ROOT / "include").with_suffix("").parts)
        importlib.import_module(name)
    (one,) = {kernel._cache._places for kernel in numba_cache.kernels}
    made = {file.name.rpartition("-")[0] for file in one.made.rglob(f"*{SUFFIX}")}
    inlined = {
        kernel._cache._name
        for kernel in numba_cache.kernels
        if kernel.targetoptions.get("inline") == "always"
    }
    assert {kernel._cache._name for kernel in numba_cache.kernels} - inlined <= made


def test_what_is_complete_is_not_compiled_again():
    done = CliRunner().invoke(app, ["compile", "--json"])
    (native,) = json.loads(done.stdout)["compiled"]
    assert (native["target"], native["seconds"]) == (NATIVE, 0.0)
    assert native["kernels"] > 100


def test_a_target_that_is_none_is_refused_with_those_there_are():
    with pytest.raises(BadInputError, match="'avx'; take native, vbmi, avx2, portable"):
        compile_kernels(["avx"])


def test_a_folder_that_cannot_be_written_to_is_named_with_what_to_do(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CacheUnusableError, match="--to DIR"):
        compile_kernels([NATIVE], tmp_path / "file")


@pytest.mark.parametrize("level", ["vbmi", "avx2", "portable"])
def test_kernels_are_compiled_for_levels_that_this_machine_may_not_have(
    tmp_path, monkeypatch, level
):
    found = [("puffin_ann.blobs.encoding.kernels", "put_varints", _types_of_put_varints())]
    monkeypatch.setattr("puffin_ann.compilation.compile._find_types", lambda base: found)
    (one,) = compile_kernels([level], tmp_path / "made")
    files = list((tmp_path / "made").rglob(f"*{SUFFIX}"))
    assert (one.target, one.level, one.kernels) == (level, level, len(files))
    assert any("put_varints" in file.name for file in files)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o644}
    assert compile_kernels([level], tmp_path / "made")[0].seconds == 0
    (kernel,) = (file for file in files if ".put_varints-" in file.name)
    for damage in (lambda file: file.unlink(), lambda file: file.write_bytes(b"short")):
        damage(kernel)
        assert compile_kernels([level], tmp_path / "made")[0].seconds > 0
        assert compile_kernels([level], tmp_path / "made")[0].seconds == 0
        assert kernel.stat().st_size > 1000


def test_kernels_compiled_without_hnswlib_are_not_complete_once_it_is_installed(
    tmp_path, monkeypatch
):
    found = [("puffin_ann.blobs.encoding.kernels", "put_varints", _types_of_put_varints())]
    monkeypatch.setattr("puffin_ann.compilation.compile._find_types", lambda base: found)
    with monkeypatch.context() as without:
        without.setattr("puffin_ann.compilation.compile.find_spec", lambda name: None)
        compile_kernels(["avx2"], tmp_path)
        assert compile_kernels(["avx2"], tmp_path)[0].seconds == 0
    assert compile_kernels(["avx2"], tmp_path)[0].seconds > 0


def _types_of_put_varints():
    from numba import types

    return (types.Array(types.int64, 1, "C"), types.Array(types.uint8, 1, "C"))
