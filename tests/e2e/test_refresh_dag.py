"""An index follows its table through the DAGs that production loads."""

import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from puffin_ann import open_index
from puffin_ann.lifecycle.evaluate.records import evaluations
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runtime.leases import index_lease, writing
from tests.support.airflow.airflow_stage import Stage
from tests.support.paths import SAMPLE

INDEX = "followed"
ROWS, MORE = 2000, 60
DECLARATION = """
table: demo.glove.followed
column: embedding
key: word
metric: cosine
algorithm: vamana
parameters: {R: 16, L: 32}
shards: 1
partitions_per_shard: 4
recall_target: 0.9
refresh: {min_rows: 10}
spark: {conf: {spark.ui.enabled: "false", spark.driver.memory: 1g}}
"""
BUILD = """
import sys
from puffin_ann.declaration import load_declarations
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.settings import settings
found = load_declarations(*settings().declarations_dir)
declared = {declaration.name: declaration for declaration in found}
print(refresh_in_process(declared[sys.argv[1]], run_id="build-1"))
"""


@pytest.fixture(scope="module")
def followed(stage: Stage) -> Table:
    """2,000 words with an index; more are to come."""
    data = pq.read_table(SAMPLE)
    catalog = stage.catalog()
    catalog.create_namespace_if_not_exists("glove")
    table = catalog.create_table("glove.followed", schema=data.schema)
    table.append(data.slice(0, ROWS))
    stage.declare(INDEX, DECLARATION)
    built = stage.run(sys.executable, "-c", BUILD, INDEX)
    assert built.returncode == 0, built.stderr[-4000:]
    assert "'action': 'build'" in built.stdout
    return table


def found(stage: Stage):
    (one,) = status(stage.catalog().load_table("glove.followed"), INDEX)
    return one


def snapshots(stage: Stage) -> int:
    return len(stage.catalog().load_table("glove.followed").snapshots())


def test_added_rows_are_found_through_the_index_after_a_refresh(stage, followed):
    more = pq.read_table(SAMPLE).slice(ROWS, MORE)
    followed.refresh().append(more)
    assert found(stage).rows_to_scan == MORE
    stage.run_dag(f"ann_refresh_{INDEX}")
    after = found(stage)
    assert (after.rows_to_scan, after.rows_masked, after.vectors) == (0, 0, ROWS + MORE)
    index = open_index(stage.catalog().load_table("glove.followed"), INDEX)
    queries = np.stack(more.column("embedding").to_numpy()).astype(np.float32)
    nearest = index.search(queries, 1, columns=["word"], freshness="indexed")
    assert nearest.column("word").to_pylist() == more.column("word").to_pylist()


def test_a_refresh_of_an_unchanged_table_publishes_nothing_and_says_so(stage, followed):
    before = snapshots(stage)
    log = stage.run_dag(f"ann_refresh_{INDEX}")
    assert snapshots(stage) == before
    assert "none" in log


def test_deleted_rows_are_tombstones_after_a_refresh(stage, followed):
    followed.refresh().delete(f"id < {MORE}")
    stage.run_dag(f"ann_refresh_{INDEX}")
    after = found(stage)
    assert (after.rows_to_scan, after.rows_masked, after.vectors) == (0, 0, ROWS)


def test_maintenance_runs_to_its_end_and_the_index_is_as_good_as_before(stage, followed):
    stage.run_dag(f"ann_maintain_{INDEX}")
    assert found(stage).vectors == ROWS


def test_an_evaluation_is_recorded(stage, followed):
    log = stage.run_dag(f"ann_evaluate_{INDEX}")
    assert "the target is 0.9" in log
    one = evaluations(stage.catalog().load_table("glove.followed"), INDEX)[-1]
    assert one.recall >= 0.9
    assert (one.rows, one.coverage) == (ROWS, 1.0)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("evaluate", INDEX), "the target is 0.9"),
        (("maintain", "demo.glove.followed"), f"{INDEX}: nothing to do: "),
    ],
)
def test_the_command_line_does_the_same(stage, followed, command, said):
    done = stage.run("puffin-ann", *command)
    assert done.returncode == 0, done.stderr[-4000:]
    assert said in " ".join(done.stdout.split())


def test_a_lease_that_is_held_is_told_and_not_waited_for_unless_that_is_wanted(stage, followed):
    with writing(stage.catalog().load_table("glove.followed"), INDEX, "run-a", "build"):
        done = stage.run("puffin-ann", "build", INDEX, "--no-wait")
    assert done.returncode == 9
    assert "being worked on by build (run run-a) since" in " ".join(done.stderr.split())


def test_no_lease_is_held_and_nothing_staged_is_left_behind(stage, followed):
    table = stage.catalog().load_table("glove.followed")
    held = index_lease(table, INDEX).look()
    assert held is not None
    assert held.released
    metadata = stage.folder / "warehouse" / "glove" / "followed" / "metadata"
    assert [path for path in metadata.rglob("_ann-staging/*/*/*") if path.is_file()] == []
