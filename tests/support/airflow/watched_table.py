"""A table with indexes, and the running Airflow that makes them follow it."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from home import environment, write_catalog
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from puffin_ann import open_index
from puffin_ann.lifecycle.report.status import IndexStatus, status
from puffin_ann.lifecycle.runtime.leases import index_lease
from tests.support.airflow.airflow_server import LocalAirflow, wait_until
from tests.support.paths import SAMPLE

NAME = "demo.glove.watched"
KINDS = ("build", "refresh", "maintain")
SECONDS = 600
"""For what takes half a minute on a machine that has nothing else to do."""

MINUTE = 60.0
"""After a change, a run of the refresh DAG begins within so many seconds."""

DECLARATION = """
table: demo.glove.watched
column: embedding
key: word
algorithm: vamana
parameters: {{R: 16, L: 32}}
shards: {shards}
partitions_per_shard: 4
recall_target: 0.8
seed: {seed}
refresh: {{min_rows: 10, poll_interval: 2s, watch: {watch}}}
maintain: {{schedule: {window}}}
evaluate: {{schedule: null}}
spark: {{conf: {{spark.ui.enabled: "false", spark.driver.memory: 1g}}}}
"""
BUILD = """
from puffin_ann.declaration import load_declarations
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.settings import settings
for declaration in load_declarations(*settings().declarations_dir):
    print(refresh_in_process(declaration, run_id="build-1"))
"""
APPEND = """
import sys
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
table = load_catalog("demo").load_table("glove.watched")
table.append(pq.read_table(sys.argv[1]).slice(int(sys.argv[2]), int(sys.argv[3])))
"""


@dataclass(frozen=True)
class WatchedTable:
    """A table with indexes that were built, and the Airflow that watches it.

    Attributes:
        server: the Airflow; its variables name the folder of declarations.
        declarations: that folder.
        indexes: their names.
        shards: of each index.
        more: further lines of their declarations.
        seen: snapshots that publish an index, whether they are there or went with their tags.
    """

    server: LocalAirflow
    declarations: Path
    indexes: tuple[str, ...]
    shards: int = 1
    more: str = ""
    seen: set[int] = field(default_factory=set, compare=False)

    @classmethod
    def made(
        cls,
        server: LocalAirflow,
        declarations: Path,
        *indexes: str,
        rows: int,
        shards: int = 1,
        more: str = "",
    ) -> "WatchedTable":
        """Declare indexes over so many words, and build them; the server is not started."""
        server.variables["PUFFIN_ANN_DECLARATIONS_DIR"] = str(declarations)
        made = cls(server, declarations, indexes, shards, more)
        for name in indexes:
            made.declare(name)
        write_catalog(server.local)
        catalog = made.catalog()
        catalog.create_namespace("glove")
        table = catalog.create_table("glove.watched", schema=pq.read_schema(SAMPLE))
        table.append(pq.read_table(SAMPLE).slice(0, rows))
        made.program("-c", BUILD)
        return made

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the server's parts, and of people's shells beside it."""
        return {**environment(self.server.local), **self.server.variables}

    def declare(self, name: str, *, window: str = "null", watch: str = "true") -> None:
        seed = self.indexes.index(name)
        text = DECLARATION.format(seed=seed, window=window, watch=watch, shards=self.shards)
        (self.declarations / f"{name}.yaml").write_text(text + self.more)

    def stop_watching(self, name: str) -> None:
        """Declare that changes of the table start no refresh, and wait until that is known."""
        self.declare(name, watch="false")

        def is_watched() -> bool:
            _, dag = self.server.request("GET", f"/api/v2/dags/ann_refresh_{name}/details")
            return dag["asset_expression"] is not None

        wait_until(lambda: not is_watched(), SECONDS)

    def catalog(self):
        local = self.server.local
        return load_catalog(
            "demo",
            type="sql",
            uri=f"sqlite:///{local / 'catalog.db'}",
            warehouse=f"file://{local / 'warehouse'}",
        )

    @property
    def table(self) -> Table:
        return self.catalog().load_table("glove.watched")

    def program(self, *arguments: str) -> str:
        """Run Python in a process of its own, and return what it printed."""
        done = subprocess.run(
            [sys.executable, *arguments],
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    def told(self, *command: str) -> list[dict] | dict:
        """What `puffin-ann ... --json` prints."""
        return json.loads(self.program("-m", "puffin_ann.cli.main", *command, "--json"))

    def append(self, first: int, rows: int) -> None:
        """Add words of the sample, by a process that knows nothing of indexes."""
        self.program("-c", APPEND, str(SAMPLE), str(first), str(rows))

    def states(self, kind: str, index: str) -> list[str]:
        """The states of the runs of an index's DAG, the oldest first."""
        return [run["state"] for run in self.server.runs(f"ann_{kind}_{index}")]

    def quiet(self) -> bool:
        """Tell whether no run is queued or running."""
        states = [self.states(kind, name) for kind in KINDS for name in self.indexes]
        return all(state in ("success", "failed") for found in states for state in found)

    def settle(self) -> None:
        """Wait until the indexes have followed the table, and their runs have ended."""

        def covers() -> bool:
            assert not any("failed" in self.states("refresh", name) for name in self.indexes)
            return self.covers()

        wait_until(covers, SECONDS, every=1)
        wait_until(self.quiet, SECONDS, every=1)

    def status(self, index: str) -> IndexStatus:
        return status(self.table, index)[0]

    def covers(self) -> bool:
        """Tell whether searches have nothing to scan, and nothing to mask."""
        found = map(self.status, self.indexes)
        return all(status.rows_to_scan == status.rows_masked == 0 for status in found)

    def published(self) -> int:
        """Count the publications that were ever seen: a tagged snapshot goes after some newer."""
        self.seen.update(
            each.snapshot_id
            for each in self.table.snapshots()
            if any(key.startswith("ann.") for key in each.summary.additional_properties)
        )
        return len(self.seen)

    def held_by(self, index: str) -> str:
        """The owner of an index's lease; empty if nobody has it."""
        held = index_lease(self.table, index).look()
        return "" if held is None or held.released else held.claim.owner

    def nearest(self, index: str, first: int, rows: int, *, exhaustive: bool = False) -> list[str]:
        """The words nearest to some of the sample, by what is indexed alone."""
        words = pq.read_table(SAMPLE).slice(first, rows).column("embedding")
        queries = np.array(words.to_pylist(), dtype=np.float32)
        found = open_index(self.table, index)
        assert (found.view.rows_masked, found.view.rows_to_scan) == (0, 0)
        options = {"freshness": "indexed", "exhaustive": exhaustive}
        answer = found.search(queries, 1, columns=["word"], **options)
        return answer.column("word").to_pylist()


def words(first: int, rows: int) -> list[str]:
    return pq.read_table(SAMPLE).slice(first, rows).column("word").to_pylist()
