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


def run(code):
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_search_imports_no_pandas_and_whoever_scans_finds_what_is_needed():
    run(SCAN)


def test_what_was_imported_before_stays():
    run(BEFORE)
