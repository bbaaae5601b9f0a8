"""Columns that a declaration includes, kept and brought up to date by tasks on Spark."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import yaml

from puffin_ann import open_index
from tests.support.lifecycle import builds, refreshes
from tests.support.paths import ROOT

QUERIES = np.random.default_rng(5).normal(size=(2, builds.DIMENSION)).astype(np.float32)

RUNS = """
import sys
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from puffin_ann.cli.spark_session import on_spark
from puffin_ann.declaration import load_declaration
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from tests.support.lifecycle import builds

declared = load_declaration(Path(sys.argv[1]))
with on_spark(declared, "local[2]") as runner:
    print(refresh_in_process(declared, run_id="build", runner=runner)["action"])
    table = load_catalog("test").load_table("demo.words")
    data = table.scan().to_arrow()
    words = pa.array([f"{word}+" for word in data["word"].to_pylist()], data["word"].type)
    table.overwrite(data.set_column(1, data.schema.field("word"), words).slice(5))
    table.append(builds.rows(range(60, 90)))
    done = refresh_in_process(declared, run_id="refresh", force=True, runner=runner)
    print(done["action"], done["rows_added"], done["rows_gone"])
"""


@pytest.mark.slow
def test_a_build_and_a_refresh_on_spark_keep_the_values_of_included_columns(words, tmp_path):
    declaration = refreshes.declared("vamana", include=["id", "word"])
    declared = tmp_path / "declared.yaml"
    declared.write_text(yaml.safe_dump(declaration.model_dump(mode="json")))
    done = subprocess.run(
        [sys.executable, "-c", RUNS, str(declared)],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == ["build", "refresh 30 5"]
    refreshes.assert_right(words.refresh(), declaration)
    data = words.scan().to_arrow()
    expected = dict(zip(data["id"].to_pylist(), data["word"].to_pylist(), strict=True))
    assert sum(word.endswith("+") for word in expected.values()) == 55
    index = open_index(words, builds.INDEX)
    for where, begins in ((None, ""), ("word like 'w3%'", "w3")):
        matching = {key: word for key, word in expected.items() if word.startswith(begins)}
        found = index.search(
            QUERIES[:1], 200, columns=["id", "word"], where=where, allow_fewer=True
        )
        assert (
            dict(zip(found["id"].to_pylist(), found["word"].to_pylist(), strict=True)) == matching
        )
        told = json.loads(found.schema.metadata[b"puffin_ann"])
        assert (told["bytes_of_columns"], told["rows_with_columns"]) == (0, len(matching))
