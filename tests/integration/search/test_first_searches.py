"""Once an index is warm, searches wait for nothing that a later one does not wait for."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.lifecycle import builds
from tests.support.paths import SAMPLE

ROWS = 12_000

SCRIPT = """
import sys
import numpy as np
from puffin_ann import open_index
from puffin_ann.kernel_cache import numba_cache
from puffin_ann.search.conditions.ways import Way

index = open_index(*sys.argv[1:3])
if sys.argv[3] == "warm":
    index.warm()
load, loaded = numba_cache.load, []

def counted(path, *others):
    loaded.append(path.name)
    return load(path, *others)

numba_cache.load = counted
queries = np.random.default_rng(0).normal(size=(6, 100)).astype(np.float32)
for few in (queries[:1], queries):
    index.search(few, 3)
    for way in (None, Way.COMPARE, Way.SIFT):
        index._shards.way = way
        for most in (11_500, 4_000):
            index.search(few, 3, where=f"draw < {most}")
print(*loaded)
"""


@pytest.fixture
def built(catalog):
    """An index of rows so many that queries alone are compared with them by signs."""
    words = pq.read_table(SAMPLE, columns=["embedding"])
    rows = words.slice(0, ROWS).append_column("draw", pa.array(np.arange(ROWS) * 7919 % ROWS))
    table = catalog.create_table("demo.words", schema=rows.schema)
    table.append(rows)
    builds.build(builds.declaration(algorithm="vamana", shards=4, partitions_per_shard=8), "run")
    return table


def loaded_after(how):
    """Return the kernels that a fresh process loads to search, once it did what it is told."""
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT, "test.demo.words", builds.INDEX, how],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-4000:]
    return told.stdout.split()


def test_the_first_searches_of_a_warm_index_load_no_kernel(built):
    assert loaded_after("cold")
    assert loaded_after("warm") == []
