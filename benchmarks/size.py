"""What `puffin-ann size` foretells against a real million rows: bytes, cache, memory, requests.

Shards of every algorithm and form are written, unpacked and searched, each in a process of its own;
two whole indexes are built on a real S3 server, and first answers of them counted.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import engines, lakehouse
from benchmarks.data import NEIGHBOURS, enlarged, load
from benchmarks.memory import occupied
from benchmarks.results import Result, Row
from benchmarks.s3 import on_s3
from puffin_ann.blobs.encoding.stored_vectors import Form, Stored
from puffin_ann.declaration import FORMS_OF
from puffin_ann.engines import engine, links
from puffin_ann.engines.sizes import LOCATOR_BYTES, Shape, Size, predict

ROWS = 1_000_000
ROWS_OF = {"hnsw": 100_000}
"""Of algorithms that take too long to build a million."""
METRIC = "cosine"
"""Of which most lies beside the vectors."""
ALGORITHMS = ("exact", "ivf_pq", "vamana", "hnsw")
INDEXES: tuple[tuple[Form, int], ...] = (("float32", 4), ("none", 1))
"""Forms of two indexes of `ivf_pq`, and their shards."""
QUERIES, WIDTH = 20_000, 48
FIRST_QUERIES = 30
ROW_GROUP_ROWS = 65_536
BOUND, AIM = 10.0, 5.0
"""Percent that a figure is off, at most."""


def measure(name: str, rounds: int) -> Result:
    """Build everything once: sizes are the same each time, whatever `rounds`."""
    del rounds
    result = Result(family="size")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        vectors = enlarged(load(name).vectors, ROWS, folder / "vectors.npy")
        for algorithm in ALGORITHMS:
            result.rows += _shards(algorithm, vectors[: ROWS_OF.get(algorithm, ROWS)], folder)
        result.rows += _indexes(vectors, folder)
    return result


def _shards(algorithm: str, vectors: NDArray[np.float32], folder: Path) -> list[Row]:
    """Compare a shard of each form that an algorithm knows."""
    scratch = Path(tempfile.mkdtemp(dir=folder))
    one = engine(algorithm)
    built = one.build(
        vectors,
        metric=METRIC,
        parameters=one.check({}, vectors.shape[1]),
        norm_bound=0.0,
        seed=0,
        threads=engines.BUILD_THREADS,
        scratch=scratch,
    )
    measured = None
    if algorithm == "vamana":
        drawn = np.random.default_rng(0).choice(
            len(vectors), links.rows_to_measure(vectors.shape[1]), replace=False
        )
        measured = links.measured(vectors[np.sort(drawn)], METRIC, None, threads=2)
    found: list[Row] = []
    for form in FORMS_OF[algorithm]:
        blob, unpacked = scratch / "blob", scratch / form
        unpacked.mkdir()
        with blob.open("wb") as out:
            length = one.encode(built, out, Stored(form))
        with blob.open("rb") as source:
            one.unpack(source, unpacked)
        if not found:  # kernels are compiled, which takes memory
            _touched(algorithm, unpacked, folder / "vectors.npy", len(vectors))
        touched = _touched(algorithm, unpacked, folder / "vectors.npy", len(vectors))
        index = lakehouse.declared(algorithm=algorithm, vectors=form, metric=METRIC, shards=1)
        size = predict(Shape(index, len(vectors), vectors.shape[1], links=measured))
        places = LOCATOR_BYTES * len(vectors)  # no part of the engine
        real = {"blob": length, "cache": engines.size_of(unpacked), "memory": touched}
        found.append(
            _row(
                f"size-{algorithm}-{form}",
                f"`{algorithm}`, `vectors: {form}`, a shard of {len(vectors):,} rows",
                {
                    "blob": size.shard,
                    "cache": size.cache - places,
                    "memory": size.memory - places,
                },
                real,
            )
        )
        shutil.rmtree(unpacked)
    shutil.rmtree(scratch)
    return found


def _touched(algorithm: str, unpacked: Path, vectors: Path, rows: int) -> int:
    """Return the bytes of memory that many searches of a shard touch, in a process of its own."""
    arguments = [algorithm, str(unpacked), str(vectors), str(rows)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.size", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout.split()[-1])


def _indexes(vectors: NDArray[np.float32], folder: Path) -> list[Row]:
    """Compare whole indexes on S3, and what first answers of them ask of it."""
    from puffin_ann.settings import settings

    os.environ.setdefault("NUMBA_CACHE_DIR", str(settings().cache_dir))
    os.environ["PUFFIN_ANN_CACHE_DIR"] = str(folder / "cache")
    settings.cache_clear()
    rng = np.random.default_rng(1)
    near = vectors[np.sort(rng.choice(len(vectors), FIRST_QUERIES, replace=False))]
    queries = near + 0.2 * near.std() * rng.standard_normal(near.shape, dtype=np.float32)
    with on_s3(folder) as proxy:
        lakehouse.create_table(vectors, row_group_rows=ROW_GROUP_ROWS)
        return [
            row for form, shards in INDEXES for row in _index(proxy, form, shards, vectors, queries)
        ]


def _index(
    proxy: Any, form: Form, shards: int, vectors: NDArray[np.float32], queries: NDArray[np.float32]
) -> list[Row]:
    from puffin_ann import open_index
    from puffin_ann.lake.catalog.tables import load_table
    from puffin_ann.lake.read.data.column_chunks import KEPT
    from puffin_ann.lifecycle.runtime.runners import InProcess
    from puffin_ann.search.shards.cold.requests import expected_requests
    from puffin_ann.settings import settings

    name = f"size_{form}"
    declared = lakehouse.declared(
        name=name, algorithm="ivf_pq", vectors=form, shards=shards, metric=METRIC
    )
    lakehouse.build(declared, name, InProcess())
    shutil.rmtree(settings().cache_dir, ignore_errors=True)  # the gate had shards there
    asked = []
    for query in queries:
        loaded = load_table(lakehouse.TABLE)
        KEPT.clear()  # vectors that were read of the table, where the index has none
        proxy.hold_back(0.0)
        open_index(loaded, name, cache="none").search(query, NEIGHBOURS)
        asked.append(len(proxy.requests))
    index = open_index(lakehouse.TABLE, name)
    index.search(queries, NEIGHBOURS, probe_partitions=index.version.routing.cells.count)
    row_groups = -(-len(vectors) // lakehouse.FILES // ROW_GROUP_ROWS)
    shape = Shape(declared, len(vectors), vectors.shape[1], lakehouse.FILES, row_groups)
    size = predict(shape)
    routing = index.version.routing
    cells = -(-routing.search_width // 2) if form == "none" else routing.scan_partitions
    title = f"`ivf_pq`, `vectors: {form}`, an index of {len(vectors):,} rows in {shards} shards"
    real = _lengths(index) | {
        "file": index.version.length,
        "cache": engines.size_of(settings().cache_dir),
    }
    return [
        _row(f"size-index-{form}", title, _parts(size, real), real),
        _row(
            f"size-requests-{form}",
            f"{title}: requests of a first answer on S3",
            {"requests": expected_requests(shape, size, cells)},
            {"requests": mean(asked)},
            f"{min(asked)} to {max(asked)}, {cells} {'lists' if form == 'none' else 'cells'} read",
        ),
    ]


def _lengths(index: Any) -> dict[str, int]:
    """Return the bytes of an index's blobs, not compressed, of those of shards on average."""
    from puffin_ann.search.version.index_files import open_puffin

    by_kind: dict[str, list[int]] = {}
    blobs = index.version.own_blobs
    with open_puffin(index.table.io, index.version.path) as reader:
        for blob in blobs:
            kind = blob.type.removeprefix("puffin-ann-").rpartition("-v")[0]
            length = len(reader.read(blob)) if blob.compression_codec else blob.length
            by_kind.setdefault({"ivf": "shard"}.get(kind, kind), []).append(length)
    behind = max(blob.offset + blob.length for blob in blobs)
    lengths = {kind: round(mean(found)) for kind, found in by_kind.items()}
    return lengths | {"footer": index.version.length - behind}


def _parts(size: Size, real: Mapping[str, int]) -> dict[str, int]:
    return {name: getattr(size, name) for name in real if hasattr(size, name)}


def _row(
    key: str,
    what: str,
    foretold: Mapping[str, float],
    real: Mapping[str, float],
    note: str = "",
) -> Row:
    """Hold the figure that is farthest off to the bound."""
    off = {name: 100 * (figure / real[name] - 1) for name, figure in foretold.items()}
    worst = max(off, key=lambda name: abs(off[name]))
    told = ", ".join(f"{name} {by:+.1f} %" for name, by in off.items())
    return Row(
        key=key,
        what=f"`puffin-ann size` against {what}: off by, at most",
        ours=f"{worst} {foretold[worst]:,.0f}",
        theirs=f"{real[worst]:,.0f}",
        measured=abs(off[worst]),
        least=BOUND,
        aim=AIM,
        below=True,
        unit="%",
        note=f"{told}; {note}" if note else told,
    )


def _mapped(folder: Path) -> int:
    """Return the bytes of a folder's files that this process has in memory."""
    found, is_there = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split(maxsplit=1)[0]
        if not first.endswith(":"):
            is_there = str(folder) in line
        elif first == "Rss:" and is_there:
            found += int(line.split()[1]) << 10
    return found


def main(algorithm: str, unpacked: str, vectors: str, rows: str) -> None:
    """Open a shard, search it for many rows near its own, and print what memory that took."""
    some = np.random.default_rng(1).choice(int(rows), QUERIES, replace=False)
    queries = np.array(np.load(vectors, mmap_mode="r")[np.sort(some)])
    shard: Any = engine(algorithm).open(Path(unpacked))
    search = shard.search if hasattr(shard, "search") else shard.candidates
    search(queries[:1], NEIGHBOURS, width=WIDTH)  # kernels are loaded
    before = occupied()
    for at in range(0, 1000 if algorithm == "exact" else QUERIES, 1000):
        search(queries[at : at + 1000], NEIGHBOURS, width=WIDTH, threads=2)
    made = round((occupied() - before) * (1 << 20))
    print(made + _mapped(Path(unpacked)))


if __name__ == "__main__":
    main(*sys.argv[1:])
