"""The first search in a fresh process, kernels compiled and shards cached before."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import lakehouse
from benchmarks.data import load
from benchmarks.results import Result, Row
from benchmarks.settle import settle

SCRIPT = """
import time; began = time.perf_counter()
import numpy as np
from puffin_ann import open_index
imported = time.perf_counter()
index = open_index({table!r}, "bench")
index.search(np.load({query!r}), 10)
print(time.perf_counter() - began, imported - began)
"""


def measure(name: str, rounds: int) -> Result:
    """Build an index, search it once to fill the caches, then in fresh processes."""
    data = load(name)
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        lakehouse.configure(folder)
        from puffin_ann.lifecycle.runtime.runners import InProcess

        lakehouse.create_table(data.vectors)
        lakehouse.build(lakehouse.declared(), "bench", InProcess())
        query = folder / "query.npy"
        np.save(query, data.queries[:1])
        script = SCRIPT.format(table=lakehouse.TABLE, query=str(query))
        times = [_once(script) for _ in range(max(5, rounds) + 1)][1:]
    total, imports = (median(column) for column in zip(*times, strict=True))
    return Result(
        family="first",
        rows=[
            Row(
                key="first",
                what="first search in a fresh process, from the imports to the answer, warm caches",
                ours=f"{total:.2f} s",
                theirs="–",
                measured=total,
                least=1.0,
                aim=0.3,
                below=True,
                unit="s",
                note=f"4 shards, {data.title}",
            ),
            Row(
                key="first-imports",
                what="of it importing NumPy and `puffin_ann.open_index`",
                ours=f"{imports:.2f} s",
                theirs="–",
                measured=imports,
                least=0.5,
                aim=0.3,
                below=True,
                unit="s",
            ),
        ],
    )


def _once(script: str) -> tuple[float, float]:
    settle()
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        # Installed packages have their bytecode; where none may be written, ours would not.
        env={key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"},
    )
    total, imports = (float(text) for text in done.stdout.split()[-2:])
    return total, imports
