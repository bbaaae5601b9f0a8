"""A build on a cluster whose workers have no more than Python: the library comes as an archive.

`PACKED` names it, such as that of `make pack`; without it one is packed of this environment.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from puffin_ann import open_index
from tests.e2e.conftest import standalone_cluster
from tests.support.servers.packed_environment import BASE, pack_environment

DECLARATION = """
table: demo.glove.words
column: embedding
algorithm: vamana
parameters: {{R: 32, L: 64}}
shards: 2
partitions_per_shard: 4
recall_target: 0.9
spark:
  archives: ["{archive}#environment"]
  env: {{PYICEBERG_HOME: {catalog}}}
"""


@pytest.fixture
def bare(stage) -> dict[str, str]:
    """The environment of machines on which Python has none of the packages that we need."""
    java = shutil.which("java")
    assert java is not None
    folders = [str(Path(java).parent), "/usr/bin", "/bin"]
    variables = {"PATH": os.pathsep.join(folders), "HOME": str(stage.folder)}
    if "JAVA_HOME" in os.environ:
        variables["JAVA_HOME"] = os.environ["JAVA_HOME"]
    for package in ("puffin_ann", "pyiceberg", "pyspark"):
        done = subprocess.run(
            [BASE, "-c", f"import {package}"], env=variables, capture_output=True, check=False
        )
        assert done.returncode != 0, f"{BASE} has {package}"
    return variables


@pytest.mark.long
def test_workers_with_a_bare_python_build_by_a_packed_environment(stage, vectors, bare, tmp_path):
    archive = Path(os.environ.get("PACKED", tmp_path / "puffin-ann.tar.gz"))
    if "PACKED" not in os.environ:
        pack_environment(archive)
    stage.declare("words_packed", DECLARATION.format(archive=archive, catalog=stage.folder))
    cluster = tmp_path / "cluster"
    with standalone_cluster(cluster, bare) as master:
        done = stage.run(
            *("puffin-ann", "build", "words_packed", "--master", master),
            PYSPARK_PYTHON="./environment/bin/python",
        )
    assert done.returncode == 0, done.stdout + done.stderr
    unpacked = {path.parents[2] for path in cluster.glob("worker-*/app-*/*/environment/bin")}
    assert {path.parent for path in unpacked} == {cluster / "worker-0", cluster / "worker-1"}
    index = open_index(stage.catalog().load_table("glove.words"), "words_packed")
    found = index.search(vectors[:20], 1)
    assert sum(distance < 1e-5 for distance in found["distance"].to_pylist()) >= 18
