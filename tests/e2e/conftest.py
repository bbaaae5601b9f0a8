"""A local Airflow and its catalog in a folder of the test session, and a table of real vectors."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from puffin_ann.settings import configure_numba

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "include" / "local"))

from home import environment, write_catalog  # noqa: E402

SAMPLE = ROOT / "include" / "sample_data" / "glove-100d-20k.parquet"
ROWS = 4000
FILES = 4
QUERIES = 400


@dataclass(frozen=True)
class Stage:
    """A folder with an Airflow home, a catalog and declarations, and the variables for it."""

    folder: Path
    variables: dict[str, str]

    @property
    def declarations(self) -> Path:
        return self.folder / "indexes"

    def catalog(self) -> Catalog:
        return load_catalog(
            "demo",
            type="sql",
            uri=f"sqlite:///{self.folder / 'catalog.db'}",
            warehouse=f"file://{self.folder / 'warehouse'}",
        )

    def declare(self, name: str, text: str) -> None:
        (self.declarations / f"{name}.yaml").write_text(text)

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env={**self.variables, **variables},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def run_dag(self, name: str, **variables: str) -> str:
        """Run a DAG to its end and return its log; fails the test unless the run succeeded."""
        done = self.run("airflow", "dags", "test", name, **variables)
        log = done.stdout + done.stderr
        assert done.returncode == 0, log[-6000:]
        assert "state=success" in log, log[-6000:]
        return log


@pytest.fixture(scope="session")
def stage(tmp_path_factory) -> Stage:
    folder = tmp_path_factory.mktemp("stage")
    write_catalog(folder)
    configure_numba()
    variables = {
        **environment(folder),
        "PUFFIN_ANN_DECLARATIONS_DIR": str(folder / "indexes"),
        # Compiled kernels are shared with other runs: the compiler is not what is tested.
        "NUMBA_CACHE_DIR": os.environ["NUMBA_CACHE_DIR"],
    }
    made = Stage(folder, variables)
    made.declarations.mkdir()
    migrated = made.run("airflow", "db", "migrate")
    assert migrated.returncode == 0, migrated.stderr
    return made


@pytest.fixture(scope="session")
def words(stage) -> Table:
    """4,000 words in 4 data files of several row groups, one of them with unusable vectors."""
    data = pq.read_table(SAMPLE).slice(0, ROWS)
    catalog = stage.catalog()
    catalog.create_namespace("glove")
    table = catalog.create_table(
        "glove.words",
        schema=data.schema,
        properties={"write.parquet.row-group-limit": "250"},
    )
    for number in range(FILES):
        table.append(data.slice(number * ROWS // FILES, ROWS // FILES))
    table.append(unusable(data.schema))
    return table


def unusable(schema: pa.Schema) -> pa.Table:
    """Rows that cannot be indexed: null, NaN, infinite, too short."""
    vectors = [None, [float("nan")] * 100, [float("inf")] + [0.0] * 99, [1.0, 2.0]]
    rows = {
        "id": [-1, -2, -3, -4],
        "word": ["null", "nan", "infinite", "short"],
        "embedding": vectors,
    }
    return pa.table(rows, schema=schema)


@pytest.fixture(scope="session")
def vectors(words) -> np.ndarray:
    """The usable vectors, in order of id: the oracle's data."""
    data = words.scan().to_arrow().sort_by("id").slice(4)
    flat = data.column("embedding").combine_chunks().flatten()
    return flat.to_numpy().reshape(ROWS, 100).astype(np.float32)


@pytest.fixture(scope="session")
def queries() -> np.ndarray:
    """Words that are not in the table."""
    held_out = pq.read_table(SAMPLE).slice(ROWS, QUERIES).column("embedding")
    flat = held_out.combine_chunks().flatten()
    return flat.to_numpy().reshape(QUERIES, 100).astype(np.float32)


@pytest.fixture(scope="session")
def spark_cluster(stage) -> Iterator[str]:
    """A standalone Spark cluster of one master and two workers; its address."""
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    variables = {**stage.variables, "SPARK_LOCAL_IP": "127.0.0.1"}
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    worker = ["org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g"]
    commands = [[*master, "--webui-port", "0"]]
    for number in range(2):
        work = stage.folder / f"worker-{number}"
        commands.append([*worker, "--webui-port", "0", "--work-dir", str(work), address])
    log = (stage.folder / "cluster.log").open("wb")
    processes = []
    try:
        for command in commands:
            processes.append(
                subprocess.Popen([spark_class, *command], env=variables, stdout=log, stderr=log)
            )
            wait_for_port(port)
        yield address
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=30)
        log.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port} after {seconds} s")
