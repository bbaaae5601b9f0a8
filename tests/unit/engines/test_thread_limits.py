"""Work keeps to the cores it was given: kernels, BLAS and Python's threads together."""

import json
import os
import subprocess
import sys

import pytest

ONE_CORE = """
import io, json, sys, tempfile, time
from pathlib import Path
import numpy as np
from puffin_ann.ann.clustering import kmeans
from puffin_ann.ann.exact import brute_force
from puffin_ann.engines import engine
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.settings import settings

vectors = np.random.default_rng(0).standard_normal((9000, 256)).astype(np.float32)
made, used = engine(sys.argv[1]), {}

def timed(name, work):
    whole, own = time.process_time(), time.thread_time()
    answer = work()
    used[name] = (time.process_time() - whole, time.thread_time() - own)
    return answer

def run(folder):
    threads, blob = settings().thread_count, io.BytesIO()
    given = dict(metric="ip", parameters=PARAMETERS, norm_bound=30.0, seed=0, threads=threads)
    def build(): return made.build(vectors[:8000], scratch=new(folder, "build"), **given)
    def write():
        made.encode(built, blob)
        made.unpack(io.BytesIO(blob.getvalue()), new(folder, "shard"))
        return made.open(Path(folder, "shard"))
    def search():
        shard.search(vectors[:500], 10, width=64, threads=threads)
        shard.exhaustive(vectors[:500], 10, threads=threads)
    def insert():
        del given["metric"]
        made.unpack(io.BytesIO(blob.getvalue()), new(folder, "whole"), searched=False)
        made.insert(Path(folder, "whole"), vectors[8000:], scratch=new(folder, "more"), **given)
    built = timed("build", build)
    shard = timed("write", write)
    timed("search", search)
    timed("insert", insert)
    timed("train", lambda: kmeans.train(vectors, 64, seed=0, threads=threads))
    timed("exact", lambda: brute_force.search(vectors, vectors, 10, "l2", threads=threads))

def new(folder, name):
    Path(folder, name).mkdir()
    return Path(folder, name)

PARAMETERS = made.check({"ef_construction": 40} if sys.argv[1] == "hnsw" else {}, 256)

def work(_):
    with tempfile.TemporaryDirectory() as folder:
        run(folder)
    return ""

InProcess(1).run(work, [""])  # as a task of Spark that was given one core
print(json.dumps(used))
"""


@pytest.mark.parametrize(
    "algorithm",
    [
        "exact",
        "vamana",
        *(pytest.param(algorithm, marks=pytest.mark.long) for algorithm in ("hnsw", "ivf_pq")),
    ],
)
def test_what_was_given_one_core_uses_one(algorithm):
    free = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    run = subprocess.run(
        [sys.executable, "-c", ONE_CORE, algorithm],
        capture_output=True,
        text=True,
        env=free,
        check=True,
    )
    for name, (process, thread) in json.loads(run.stdout).items():
        # Whatever the machine's load: all time that the process got, one thread of it got.
        assert process <= 1.02 * thread + 0.02, f"{name}: {process:.2f} s, {thread:.2f} s in one"
