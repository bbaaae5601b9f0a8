"""What is slow to import waits until it is used, and is then what it would have been."""

import subprocess
import sys

SCAN = """
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from puffin_ann import open_index

assert "pandas" not in sys.modules
import pyarrow.dataset as waiting

assert "pyarrow._dataset" not in sys.modules
with ThreadPoolExecutor(8) as threads:
    found = list(threads.map(lambda _: waiting.Scanner, range(64)))
import pyarrow.dataset as imported
from pyarrow.dataset import Scanner

assert set(found) == {Scanner} == {imported.Scanner}
assert imported is pa.dataset
assert imported.dataset(pa.table({"a": [1, 2]})).to_table().num_rows == 2
"""

BEFORE = """
import pyarrow.dataset as dataset

from puffin_ann import open_index
import sys

assert sys.modules["pyarrow.dataset"] is dataset
"""


EACH = """
import pickle

from puffin_ann import open_index
import pyarrow.compute
import pyarrow as pa
import pyarrow.compute as waiting
import sys

from pyarrow._compute import Expression

assert waiting.Expression is Expression
assert "Expression" not in vars(waiting)
assert pyarrow.compute.sum(pa.array([1, 2])).as_py() == 3
assert pa.compute is sys.modules["pyarrow.compute"] is not waiting
assert waiting.sum is pa.compute.sum
assert pickle.loads(pickle.dumps(waiting.field("a") < 2)).equals(pa.compute.field("a") < 2)

import yaml.nodes
import yaml

assert yaml.nodes.ScalarNode
assert yaml.__version__ and yaml.safe_load("a: 1") == {"a": 1}

from strictyaml import *

assert load("a: 1").data == {"a": "1"}

import pyiceberg.expressions.parser
from pyiceberg.expressions import LessThan

assert pyiceberg.expressions.parser.parse("a < 2") == LessThan("a", 2)
"""

LISTED = """
from puffin_ann import lake
import pyarrow.compute as waiting

names = dir(waiting)
assert {"sum", "field", "Expression"} <= {*names}
import pyarrow.compute as imported

assert imported is not waiting and names == dir(imported)
"""

TWO_AT_ONCE = """
import threading

from puffin_ann import open_index
import pyarrow.compute as compute
import pyarrow.dataset as dataset

both = threading.Barrier(2)

def ask(module, name):
    both.wait()
    getattr(module, name)

asked = [
    threading.Thread(target=ask, args=of, daemon=True)
    for of in ((dataset, "Scanner"), (compute, "sum"))
]
for thread in asked:
    thread.start()
for thread in asked:
    thread.join(60)
    assert not thread.is_alive()
"""


def run(code):
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_search_imports_no_pandas_and_whoever_scans_finds_what_is_needed():
    run(SCAN)


def test_what_was_imported_before_stays():
    run(BEFORE)


def test_what_stands_for_a_module_gives_all_that_the_module_does():
    run(EACH)


def test_the_names_of_what_stands_for_a_module_are_the_modules():
    run(LISTED)


def test_modules_of_which_one_imports_the_other_are_used_by_two_threads_at_once():
    run(TWO_AT_ONCE)
