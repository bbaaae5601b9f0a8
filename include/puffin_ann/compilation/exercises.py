"""Small indexes that are built, refreshed and searched, so that every kernel is met in real use.

A table of an embedded catalog in a folder of the process's own is written, and goes through what
tables go through: rows are added and deleted, and the index follows. What an engine does for other
settings, or for larger shards than those, is asked of it alone.
"""

import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from puffin_ann.ann.exact.range_search import FEW_QUERIES

if TYPE_CHECKING:
    from pyiceberg.table import Table

Exercise = Callable[[Path], None]

CATALOG = "exercise"
NAMESPACE = "exercises"
WIDE, NARROW = 96, 12
"""Dimensions that searches have packed nodes for, and that they have none for."""
WIDEST = 256
"""Dimensions of which searches have rows by a byte a number."""
SHARD_ROWS = 600
INTO = "whole"
"""Folder of a shard that rows are inserted into."""
BULK_ROWS = 5000
"""Rows of a shard whose graph is built in bulk."""
METRICS = ("l2", "cosine", "ip")
CHANGES = ((3, 8, False), (20, 150, False), (1, 2, True))
"""Rows that are removed and added before each refresh, the last in a maintenance window. Those that
are added first go into a delta, which is merged with the others."""
DISTANCES = (0.5, 3.5, 1000.0)
"""Within which there are none, some and all of the rows, by each metric."""
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "vamana": {"R": 16, "L": 24},
    "hnsw": {"M": 4, "ef_construction": 16},
}


def _vectors(rows: int, dimension: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, dimension)).astype(np.float32)


# Indexes of a table


def _table(folder: Path, rows: int) -> "Table":
    """Write a table of two data files; its catalog is the only one of this process."""
    (folder / "warehouse").mkdir()
    os.environ[f"PYICEBERG_CATALOG__{CATALOG.upper()}__TYPE"] = "sql"
    os.environ[f"PYICEBERG_CATALOG__{CATALOG.upper()}__URI"] = f"sqlite:///{folder}/catalog.db"
    os.environ[f"PYICEBERG_CATALOG__{CATALOG.upper()}__WAREHOUSE"] = f"file://{folder}/warehouse"
    from pyiceberg.catalog import load_catalog  # reads its configuration when it is imported

    catalog = load_catalog(CATALOG)
    catalog.create_namespace(NAMESPACE)
    first = _rows(range(rows))
    table = catalog.create_table((NAMESPACE, "rows"), schema=first.schema)
    table.append(first.slice(0, rows // 2))
    table.append(first.slice(rows // 2))
    return table


def _rows(ids: range) -> pa.Table:
    vectors = _vectors(len(ids), NARROW, seed=ids.start)
    vectors[::7] = vectors[0]  # equal rows have a way of their own through builds
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), NARROW)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "word": pa.array([f"w{number}" for number in ids]),
            "embedding": embedding.cast(pa.list_(pa.float32())),
        }
    )


def _follow(table: "Table", algorithm: str, metric: str) -> None:
    """Build an index of a table, change the table, refresh and maintain the index; search each."""
    from puffin_ann.declaration import parse_declaration

    shards = {} if algorithm == "centroid" else {"shards": 2, "partitions_per_shard": 2}
    name = f"{algorithm}_{metric}"
    declaration = parse_declaration(
        {
            "name": name,
            "table": ".".join((CATALOG, NAMESPACE, "rows")),
            "column": "embedding",
            "key": "word",
            "metric": metric,
            "algorithm": algorithm,
            "parameters": dict(PARAMETERS.get(algorithm, {})),
            "recall_target": 0.5,
            "gate": {"queries": 10, "k": 5},
            **shards,
        },
        source="exercise",
    )
    from puffin_ann.lifecycle.runs.in_process import refresh_in_process

    refresh_in_process(declaration, run_id=f"{name}-build")
    _search(table, name)
    for number, (removed, added, maintenance) in enumerate(CHANGES):
        ids = np.sort(table.scan(selected_fields=("id",)).to_arrow()["id"].to_numpy())
        table.delete(f"id < {ids[removed]}")
        table.append(_rows(range(int(ids[-1]) + 1, int(ids[-1]) + 1 + added)))
        _search(table, name)  # masks and scans
        refresh_in_process(
            declaration, run_id=f"{name}-{number}", force=True, maintenance=maintenance
        )
        _search(table, name)


def _search(table: "Table", name: str) -> None:
    from puffin_ann.search.open_index import open_index

    index = open_index(table.refresh(), name, cache="full")
    queries = _vectors(FEW_QUERIES + 1, NARROW, seed=9)
    for batch in (queries, queries[:1]):
        index.search(batch, 5)
        index.search(batch, 5, exhaustive=True)
        for distance in DISTANCES:
            index.within(batch, distance)


def _indexes(*indexes: tuple[str, str]) -> Exercise:
    """Return an exercise on indexes of one table, by algorithm and metric."""

    def exercise(folder: Path) -> None:
        table = _table(folder, 2 * SHARD_ROWS)
        for algorithm, metric in indexes:
            _follow(table, algorithm, metric)

    return exercise


# Shards alone


def _shard(
    algorithm: str,
    metric: str,
    vectors: NDArray[np.float32],
    folder: Path,
    **parameters: Any,
) -> Path:
    """Build, store, open and search a shard, with and without deleted rows; returns its folder.

    Beside it is `INTO`, the same to insert rows into.
    """
    from puffin_ann.engines import engine
    from puffin_ann.engines.exact import StoredVectors

    made = engine(algorithm)
    scratch, directory = folder / "scratch", folder / "shard"
    for made_folder in (scratch, directory, folder / INTO):
        made_folder.mkdir(parents=True)
    rows, dimension = vectors.shape
    built = made.build(
        vectors,
        metric=metric,
        parameters=made.check({**PARAMETERS.get(algorithm, {}), **parameters}, dimension),
        norm_bound=float(np.linalg.norm(vectors, axis=1).max()),
        seed=0,
        threads=2,
        scratch=scratch,
    )
    _store(made, built, folder / INTO, searched=False)
    _store(made, built, directory)
    shard = made.open(directory)
    queries = _vectors(4, dimension, seed=9)
    deleted = np.arange(rows) % 9 == 0
    few = np.arange(rows) % 90 != 0
    for mask in (None, deleted, few):
        shard.search(queries, 5, width=20, deleted=mask, threads=2)
        shard.search(queries[:1], 5, width=np.full(1, 30), deleted=mask)
        shard.exhaustive(queries, 5, deleted=mask)
    if isinstance(shard, StoredVectors):
        shard.expect(deleted)
        shard.search(queries, 5, width=20, deleted=deleted)
    shard.search(queries, 5, width=20, allowed=deleted)
    return directory


def _store(made: Any, built: Any, directory: Path, *, searched: bool = True) -> None:
    blob = io.BytesIO()
    made.encode(built, blob)
    blob.seek(0)
    made.unpack(blob, directory, searched=searched)


def _insert(algorithm: str, metric: str, folder: Path) -> None:
    """Insert rows into a shard, some of whose rows are deleted, and search what it becomes."""
    from puffin_ann.engines import engine

    made = engine(algorithm)
    _shard(algorithm, metric, _vectors(SHARD_ROWS, WIDE), folder)
    added = _vectors(SHARD_ROWS // 4, WIDE, seed=1)
    for name, mask in (("all", None), ("some", np.arange(SHARD_ROWS) % 9 == 0)):
        scratch, directory = folder / f"scratch-{name}", folder / f"into-{name}"
        scratch.mkdir()
        directory.mkdir()
        built = made.insert(
            folder / INTO,
            added,
            deleted=mask,
            parameters=made.check(PARAMETERS.get(algorithm, {}), WIDE),
            norm_bound=100.0,
            seed=0,
            threads=2,
            scratch=scratch,
        )
        _store(made, built, directory)
        made.open(directory).search(added[:3], 5, width=20)


def _vamana_in_bulk(folder: Path) -> None:
    for metric, dimension in (("l2", WIDE), ("cosine", NARROW)):
        _shard("vamana", metric, _vectors(BULK_ROWS, dimension), folder / metric)


def _vamana_beams(folder: Path) -> None:
    for metric in METRICS:
        for beam in ("full", "pq", "edges"):
            shard = _shard(
                "vamana", metric, _vectors(SHARD_ROWS, WIDE), folder / metric / beam, beam=beam
            )
        _ask_several(shard)
        _insert("vamana", metric, folder / metric / "insert")
    _shard("vamana", "l2", _vectors(SHARD_ROWS, WIDEST), folder / "coded", beam="edges")


def _ask_several(folder: Path) -> None:
    """Ask several graphs of packed nodes together, which those of the indexes here are not."""
    from puffin_ann.ann.graph.searcher import EXHAUSTIVE_ROWS, SPARE
    from puffin_ann.ann.vamana.packed.kernels_search import NO_SIEVES
    from puffin_ann.ann.vamana.several import Several
    from puffin_ann.engines.vamana import VamanaEngine
    from puffin_ann.search.shards.routes import Router
    from puffin_ann.search.shards.several.kernels_few import answer_few
    from puffin_ann.search.shards.several.kernels_located import LOCATED

    searcher = VamanaEngine().open(folder, "edges").packed_searcher
    if searcher is None:
        raise RuntimeError("no packed nodes were made")
    several, queries, k = Several([searcher, searcher], [None, None]), _vectors(1, WIDE), 5
    sieve = np.zeros(SHARD_ROWS, np.uint8)
    searcher.sift(queries, k, widths=np.array([20]), sieve=sieve)
    router = Router(_vectors(4, WIDE), np.array([0, 0, 1, 1], np.uint32))
    for sieves in (NO_SIEVES, np.array([sieve.ctypes.data] * 2, np.uint64)):
        stamps = several.take()
        asked = np.array([0, 2, 20, SPARE, EXHAUSTIVE_ROWS, stamps.last, 0, 1], np.int64)
        answers = (
            np.empty((1, k), np.int64),
            np.empty((1, k), np.int64),
            np.empty((1, k), np.float32),
        )
        zeros = np.zeros(SHARD_ROWS, np.int64)
        where = np.zeros(2, LOCATED)
        where[:] = (*[zeros.ctypes.data] * 4, SHARD_ROWS, 1)
        answer_few(
            router.routed(np.zeros(2, np.float32)), several.where(1), asked, several.live,
            several.widest, where, stamps.addresses, sieves, queries, queries,
            np.empty((2, 1), np.int64), answers, np.empty((3, k), np.int64),
            np.empty((1, 3), np.float32),
        )  # fmt: skip


def _other_engines(folder: Path) -> None:
    from puffin_ann.blobs.encoding.varints import unpack_varints

    # Rows blobs of format 1 have locators so, which no index built today has.
    unpack_varints(np.frombuffer(bytes(1), np.uint8), 1, "rows")
    _sift()
    _compare_with_hollows()
    _shard("ivf_pq", "cosine", _vectors(SHARD_ROWS, WIDEST), folder / "coded")
    for algorithm in ("ivf_pq", "exact", "hnsw"):
        for metric in METRICS:
            _insert(algorithm, metric, folder / algorithm / metric)


def _compare_with_hollows() -> None:
    """Ask whether a query lies within deleted rows, which those deleted here are too few for."""
    from puffin_ann.ann.core.metrics import METRICS, frozen
    from puffin_ann.ann.graph.hollows import Hollows

    rows = frozen(_vectors(2, WIDE))
    Hollows(rows, 1.0, 0.0).hold_one(METRICS["l2"], rows[:1], 1.0, 1)


def _sift() -> None:
    """Sift rows by a condition, gather, and code them: which is done by what costs least."""
    from puffin_ann.ann.core.metrics import METRICS
    from puffin_ann.ann.exact.compared_rows import WORTH_CODING, ComparedRows
    from puffin_ann.ann.exact.kernels_coding import BLOCK
    from puffin_ann.ann.exact.row_addresses import RowAddresses
    from puffin_ann.ann.signs.row_codes import RowCodes
    from puffin_ann.ann.signs.sign_rows import SignRows
    from puffin_ann.search.conditions import ways

    rows = _vectors(2, WIDE)
    addresses = RowAddresses.of(rows)
    addresses.copied()
    for known in (None, RowCodes(METRICS["l2"]).records_of(addresses)):
        signs = SignRows.of(addresses, METRICS["l2"], known)
        if signs is not None:
            signs.nearest(rows[:1], 1)
    compared = ComparedRows(_vectors(BLOCK, WIDE), METRICS["l2"])
    compared.nearest(np.repeat(rows, WORTH_CODING, axis=0), 1)
    for few in (rows[:1], rows):
        compared.nearest(few, 1)
    found = np.array([[2, 0, -1]]), np.array([[0.5, 1.0, np.inf]], np.float32)
    ways.sift(found, np.array([True, False, False]), 3, 1)


EXERCISES: Mapping[str, Exercise] = {
    "vamana indexes": _indexes(("vamana", "cosine")),
    "ivf_pq indexes": _indexes(("ivf_pq", "cosine")),
    "vamana in bulk": _vamana_in_bulk,
    "hnsw indexes": _indexes(("hnsw", "ip")),
    "vamana beams": _vamana_beams,
    "exact and centroid indexes": _indexes(("exact", "l2"), ("centroid", "l2")),
    "other engines": _other_engines,
}
"""By name, what is given an empty folder, in a process of its own; the longest first."""
