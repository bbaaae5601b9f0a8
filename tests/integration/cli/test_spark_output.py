"""What Spark's processes print stays off the terminal, and is found where the start fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.lifecycle import builds

SESSION = """
import sys
from pathlib import Path
from puffin_ann.cli.spark_session import on_spark
from puffin_ann.declaration import load_declaration

with on_spark(load_declaration(Path(sys.argv[1])), "local[1]") as runner:
    print(runner.run(lambda text: text + "!", ["done"])[0])
"""


@pytest.fixture
def declared(words, tmp_path):
    """The file of a declared index."""
    path = tmp_path / "declared.yaml"
    path.write_text(yaml.safe_dump(builds.declaration().model_dump(mode="json")))
    return path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
        check=False,
    )


@pytest.mark.long
def test_a_session_prints_nothing_and_leaves_no_file(declared, tmp_path):
    done = run(tmp_path, "-c", SESSION, str(declared))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done!\n", "")
    assert list(tmp_path.glob("puffin-ann-spark-*")) == []


def test_a_start_that_fails_says_why_and_where_the_rest_is(declared, tmp_path):
    build = ("-m", "puffin_ann.cli.main", "build", str(declared))
    done = run(tmp_path, *build, "--master", "nonsense://here")
    assert done.returncode == 6
    (error,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert "Spark cannot be started on master 'nonsense://here': " in error
    found = re.search(r"what it printed is in (\S+\.log)", error)
    assert found
    assert Path(found[1]).read_text()
    assert "WARNING" not in done.stderr
