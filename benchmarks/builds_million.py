"""A million wide rows built within a budget of memory, and in time that is linear in rows.

Rows are mixed of real ones, see `data.enlarged`; each build is in a fresh process.
"""

import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.data import enlarged, load
from benchmarks.memory import Spent, build_apart
from benchmarks.results import Result, Row

SIZES = (250_000, 1_000_000)
BUDGET_GIB = (1.5, 1.0)
"""Beside the mapped vectors: at most, and hoped for. At most about as much as those take."""
SLOPE = (1.1, 1.0)


def measure(name: str, rounds: int, sizes: tuple[int, ...] = SIZES) -> Result:
    """Build a shard of each size, once, whatever `rounds`.

    Vectors are written to the folder that BENCH_KEPT names, where it does, and found there again.
    """
    del rounds
    vectors = load(name).vectors
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(os.environ.get("BENCH_KEPT") or temporary)
        path = folder / f"mixed-{name}-{sizes[-1]}.npy"
        if not path.exists():
            unfinished = path.with_suffix(".part")
            enlarged(vectors, sizes[-1], unfinished)
            unfinished.rename(path)
        spent = {rows: build_apart(path, rows, Path(temporary)) for rows in sizes}
    dimension = vectors.shape[1]
    return Result(
        family="builds-million", rows=[memory_row(spent, dimension), slope_row(spent, dimension)]
    )


def memory_row(spent: Mapping[int, Spent], dimension: int) -> Row:
    """Return the line of the largest build's memory."""
    rows = max(spent)
    most = spent[rows]
    return Row(
        key="builds-million-memory",
        what=f"`vamana` peak memory above the mapped vectors, {rows:,} × {dimension} (synthetic: "
        "mixtures of sentence vectors)",
        ours=f"{most.above:.0f} MiB",
        theirs=f"the vectors {4 * rows * dimension / (1 << 20):.0f} MiB",
        measured=most.above / 1024,
        least=BUDGET_GIB[0],
        aim=BUDGET_GIB[1],
        below=True,
        unit="GiB",
        note=f"a fresh process, 2 threads, {most.seconds:.0f} s; {most.kept:.0f} MiB of it are "
        "graph and codes; pages of files do not count",
    )


def slope_row(spent: Mapping[int, Spent], dimension: int) -> Row:
    """Return the line of how seconds grow with rows: by the power that leads from few to many."""
    few, many = min(spent), max(spent)
    slope = math.log(spent[many].seconds / spent[few].seconds) / math.log(many / few)
    each = {rows: 1e6 * one.seconds / rows for rows, one in spent.items()}
    return Row(
        key="builds-million-slope",
        what=f"`vamana`, the power of the number of rows by which seconds of a build grow, "
        f"{few:,} to {many:,} × {dimension} (the same)",
        ours=f"{each[many]:.0f} us a row",
        theirs=f"{each[few]:.0f} us a row",
        measured=slope,
        least=SLOPE[0],
        aim=SLOPE[1],
        below=True,
        note="of both threads together "
        + " and ".join(f"{one.processor:.0f} s" for one in spent.values()),
    )
