"""With a scheduler and a triggerer, an index follows its table without any hand."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import SAMPLE, free_port
from home import environment, write_catalog
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from test_server import LocalAirflow

from puffin_ann import open_index
from puffin_ann.lake.index_snapshot import is_index_snapshot
from puffin_ann.lifecycle.leases import index_lease
from puffin_ann.lifecycle.status import status

pytestmark = pytest.mark.long

ROWS, MORE, SECONDS = 1500, 40, 400
DECLARATION = """
table: demo.glove.watched
column: embedding
key: word
algorithm: vamana
parameters: {{R: 16, L: 32, pq_m: 25}}
shards: 1
partitions_per_shard: 4
recall_target: 0.8
seed: {seed}
refresh: {{min_rows: 10, poll_interval: 2s}}
maintain: {{schedule: null}}
evaluate: {{schedule: null}}
spark: {{conf: {{spark.ui.enabled: "false", spark.driver.memory: 1g}}}}
"""
BUILD = """
from puffin_ann.declaration import load_declarations
from puffin_ann.lifecycle.refresh import refresh_in_process
from puffin_ann.settings import settings
for one in load_declarations(settings().declarations_dir):
    print(refresh_in_process(one, run_id="build-1"))
"""
INDEXES = ("first", "second")


class Watched:
    """A table with two indexes, and the Airflow that watches it."""

    def __init__(self, server: LocalAirflow) -> None:
        self.server = server

    @property
    def table(self) -> Table:
        local = self.server.local
        catalog = load_catalog(
            "demo",
            type="sql",
            uri=f"sqlite:///{local / 'catalog.db'}",
            warehouse=f"file://{local / 'warehouse'}",
        )
        if not catalog.namespace_exists("glove"):
            catalog.create_namespace("glove")
        schema = pq.read_schema(SAMPLE)
        return catalog.create_table_if_not_exists("glove.watched", schema=schema)

    def runs(self, dag: str) -> list[str]:
        _, answer = self.server.request("GET", f"/api/v2/dags/{dag}/dagRuns")
        return sorted(one["state"] for one in answer["dag_runs"])

    def quiet(self) -> bool:
        """Tell whether no run is queued or running."""
        kinds = ("build", "refresh")
        states = [self.runs(f"ann_{kind}_{name}") for kind in kinds for name in INDEXES]
        return all(state in ("success", "failed") for found in states for state in found)

    def published(self) -> int:
        return sum(map(is_index_snapshot, self.table.snapshots()))

    def covers(self) -> bool:
        found = [status(self.table, name)[0] for name in INDEXES]
        return all(one.rows_to_scan == one.rows_masked == 0 for one in found)


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> Iterator[Watched]:
    server = LocalAirflow(tmp_path_factory.mktemp("following"), free_port())
    declarations = tmp_path_factory.mktemp("indexes")
    for seed, name in enumerate(INDEXES):
        (declarations / f"{name}.yaml").write_text(DECLARATION.format(seed=seed))
    server.variables["PUFFIN_ANN_DECLARATIONS_DIR"] = str(declarations)
    write_catalog(server.local)
    made = Watched(server)
    made.table.append(pq.read_table(SAMPLE).slice(0, ROWS))
    variables = {**environment(server.local), **server.variables}
    done = subprocess.run(
        [sys.executable, "-c", BUILD], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    try:
        up = server.command("up")
        assert up.returncode == 0, up.stdout + up.stderr
        server.printed = up.stdout
        server.log_in()
        # The state that is there at the start is an event, too; nothing is due for it.
        wait_until(lambda: all(made.runs(f"ann_refresh_{name}") for name in INDEXES))
        wait_until(made.quiet)
        yield made
    finally:
        server.command("down")


def wait_until(condition, seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(1)


def append_in_another_process(watched: Watched, first: int) -> None:
    program = (
        "import sys, pyarrow.parquet as pq\n"
        "from pyiceberg.catalog import load_catalog\n"
        "table = load_catalog('demo').load_table('glove.watched')\n"
        "table.append(pq.read_table(sys.argv[1]).slice(int(sys.argv[2]), int(sys.argv[3])))\n"
    )
    variables = {**os.environ, "PYICEBERG_HOME": str(watched.server.local)}
    command = [sys.executable, "-c", program, str(SAMPLE), str(first), str(MORE)]
    subprocess.run(command, env=variables, check=True)


def test_the_start_publishes_nothing(watched):
    assert watched.published() == len(INDEXES)
    for name in INDEXES:
        assert watched.runs(f"ann_refresh_{name}") == ["success"]


def test_appended_rows_are_found_through_both_indexes_and_nothing_runs_after_that(watched):
    before = watched.published()
    append_in_another_process(watched, ROWS)
    wait_until(watched.covers)
    wait_until(watched.quiet)
    assert watched.published() - before == len(INDEXES)
    more = pq.read_table(SAMPLE).slice(ROWS, MORE)
    queries = np.stack(more.column("embedding").to_numpy()).astype(np.float32)
    for name in INDEXES:
        found = open_index(watched.table, name).search(
            queries, 1, columns=["word"], freshness="indexed"
        )
        assert found.column("word").to_pylist() == more.column("word").to_pylist()
        assert watched.runs(f"ann_refresh_{name}") == ["success"] * 2
    time.sleep(10)  # several polls: the index snapshots are no events
    assert watched.published() - before == len(INDEXES)
    for name in INDEXES:
        assert watched.runs(f"ann_refresh_{name}") == ["success"] * 2
        assert watched.runs(f"ann_build_{name}") == []


def held_by(watched: Watched, index: str) -> str:
    """Return the owner of an index's lease; empty if nobody has it."""
    held = index_lease(watched.table, index).look()
    return "" if held is None or held.released else held.claim.owner


def test_a_manual_run_while_another_is_at_work_waits_for_it_and_is_not_lost(watched):
    before = watched.published()
    append_in_another_process(watched, ROWS + MORE)
    wait_until(lambda: held_by(watched, "first").startswith("refresh/"))
    code, answer = watched.server.request(
        "POST", "/api/v2/dags/ann_build_first/dagRuns", logical_date=None, conf={}
    )
    assert code == 200, answer
    wait_until(lambda: watched.covers() and watched.quiet())
    assert watched.runs("ann_build_first") == ["success"]
    assert watched.runs("ann_refresh_first") == ["success"] * 3
    assert watched.published() - before == len(INDEXES), "the manual run had nothing left to do"


def test_no_part_logged_a_trigger_that_died(watched):
    log = Path(watched.server.local / "airflow" / "triggerer.log").read_text()
    assert "Trigger exited without sending an event" not in log
    assert "Traceback" not in log
