"""A short run of each coverage-guided fuzzer; `make fuzz` runs them for as long as one likes."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.paths import FUZZ, ROOT

FUZZERS = [path for path in sorted(FUZZ.glob("fuzz_*.py")) if "atheris" in path.read_text()]
RUNS = 1_500

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("fuzzer", FUZZERS, ids=[path.stem for path in FUZZERS])
def test_readers_stand_what_was_found_before_and_inputs_that_seek_new_branches(
    tmp_path, capsys, fuzzer
):
    pytest.importorskip("atheris")
    command = [sys.executable, "-m", f"tests.fuzz.{fuzzer.stem}", f"-runs={RUNS}", "-seed=1"]
    done = subprocess.run(
        # A process inherits the highest memory of the one that starts it, as far as getrusage and
        # so the fuzzer's limit know: started by a shell, it does not count what pytest holds.
        ["sh", "-c", '"$@"; exit $?', "sh", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    cases = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    found = re.search(r"new_units_added: +(\d+)", done.stderr)
    assert int(cases[1]) >= RUNS
    assert int(found[1]) > 100, "nothing was learnt from coverage"
    with capsys.disabled():
        print(f"\n{fuzzer.stem}: {int(cases[1]):,} cases")
