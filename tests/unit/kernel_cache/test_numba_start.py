"""What a process does to run kernels that were compiled: next to nothing of the compiler."""

import subprocess
import sys

SEARCH = """
import sys
import numpy as np
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.core.metrics import METRICS

rows = np.arange(3000, dtype=np.float32).reshape(1000, 3)

def search():
    return brute_force.search(rows[:2], rows, 2, METRICS["l2"], threads=1)[0].tolist()
"""

LEAN = """
from numba.core import entrypoints
from numba.core.runtime import nrtdynmod

def refuse(_):
    raise AssertionError("compiled, not loaded")

nrtdynmod.create_nrt_module = refuse
before = {name for name in sys.modules if name.startswith("numba.")}
assert search() == [[0, 1], [1, 0]], search()
after = {name for name in sys.modules if name.startswith("numba.")}
assert not {"numba.np.arrayobj", "numba.np.arraymath", "numba.cpython.unicode"} & after
assert len(after - before) < 10, after - before
assert not entrypoints._already_initialized
"""

COMPILING = """
from numba import njit
from numba.core import entrypoints

@njit
def others(text, numbers):
    return text + "!", np.sort(np.concatenate((numbers, np.ones(2)))), numbers.sum()

text, numbers, total = others("heard", np.array([3.0, 2.0]))
assert (text, numbers.tolist(), total) == ("heard!", [1.0, 1.0, 2.0, 3.0], 5.0)
assert entrypoints._already_initialized
assert search() == [[0, 1], [1, 0]]
"""

AGAIN = """
found = search()
for _ in range(20_000):
    assert search() == found
import resource
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(20_000):
    search()
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 2_000
"""


def run(*parts):
    done = subprocess.run(
        [sys.executable, "-c", "".join((SEARCH, *parts))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_kernels_are_loaded_without_what_only_the_compiler_needs():
    run("search()")  # so that all is kept, wherever that is
    run(LEAN)


def test_a_process_compiles_other_functions_after_it_loaded_kernels():
    run("search()\n", COMPILING)


def test_a_process_loads_kernels_after_it_compiled_other_functions():
    run(COMPILING)


def test_arrays_that_kernels_make_are_freed():
    run(AGAIN)
