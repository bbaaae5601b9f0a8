"""Programs beside the tests start from the checkout's root, and tell what they are."""

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT


def run(module, *arguments, **variables):
    kept = {name: value for name, value in os.environ.items() if name not in ("ONLY", "UV")}
    kept["PYTHONPATH"] = str(ROOT / "include")
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("module", ["tests.support.cockpit.page_seconds", "tests.matrix"])
def test_a_program_has_help(module):
    done = run(module, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: python -m {module}" in done.stdout


def test_the_matrix_says_what_it_needs():
    done = run("tests.matrix", UV="/nowhere/uv")
    assert (done.returncode, "run `make test-matrix`, which brings uv" in done.stderr) == (2, True)
    done = run("tests.matrix", ONLY="search,airflow-1")
    assert (done.returncode, "no cell 'airflow-1'; there are airflow-3.1" in done.stderr) == (
        2,
        True,
    )
