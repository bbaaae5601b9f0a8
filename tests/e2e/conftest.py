"""A local Airflow and its catalog in a folder of the test session, and a table of real vectors."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from home import environment, write_catalog
from pyiceberg.table import Table

from tests.support.airflow.airflow_stage import QUERIES, Stage, free_port, wait_for_port
from tests.support.paths import SAMPLE

ROWS = 4000
FILES = 4


@pytest.fixture(scope="session")
def stage(tmp_path_factory) -> Stage:
    folder = tmp_path_factory.mktemp("stage")
    write_catalog(folder)
    variables = {
        **environment(folder),
        "PUFFIN_ANN_DECLARATIONS_DIR": str(folder / "indexes"),
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
    with standalone_cluster(stage.folder / "cluster", stage.variables) as address:
        yield address


@contextmanager
def standalone_cluster(folder: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """Run a master and two workers, which have an environment of their own; gives the address."""
    folder.mkdir()
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    variables = {**variables, "SPARK_LOCAL_IP": "127.0.0.1"}
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    worker = ["org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g"]
    commands = [[*master, "--webui-port", "0"]]
    for number in range(2):
        work = folder / f"worker-{number}"
        commands.append([*worker, "--webui-port", "0", "--work-dir", str(work), address])
    log = (folder / "cluster.log").open("wb")
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
