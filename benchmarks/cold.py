"""The first answer from a table on S3 whose shards are on no local disk: round trips, bytes, time.

A real S3 server, and a proxy before it that holds each request back. The library is imported and
its kernels are warm, the table's metadata is loaded; no shard was ever read. LanceDB reads the same
vectors from the same store through the same proxy.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from benchmarks import lakehouse, lance_tables
from benchmarks.data import (
    MIXED_DIMENSION,
    MIXED_ROWS,
    NEIGHBOURS,
    ROOT,
    TITLES,
    DataSet,
    enlarged,
    load,
)
from benchmarks.results import Result, Row
from benchmarks.s3 import on_s3
from benchmarks.settle import settle
from puffin_ann.ann.exact.brute_force import search as exact_answers

CELLS = 256
"""Of each of the four shards."""
DELAYS = (0.020, 0.030, 0.063)
SHOWN = 0.030
"""Seconds a request is held back, of the line in the table."""
FIRST_QUERIES = 9
RECALL_QUERIES = 100
RECALL = 0.95


@dataclass(frozen=True)
class Found:
    """What one first answer took."""

    seconds: float
    rounds: int
    requests: int
    length: int


def measure(name: str, rounds: int) -> Result:
    """Search a million made-up rows on S3, and glosses, whose vectors are wider.

    Tables and indexes are made in the folder that BENCH_KEPT names, where it does, and found there
    by the next run: to make them takes a quarter hour.
    """
    del rounds
    sys.path.insert(0, str(ROOT))
    from puffin_ann.settings import settings

    result = Result(family="cold")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(os.environ.get("BENCH_KEPT") or temporary)
        folder.mkdir(exist_ok=True)
        os.environ.setdefault("NUMBA_CACHE_DIR", str(settings().cache_dir))
        os.environ["PUFFIN_ANN_CACHE_DIR"] = str(Path(temporary) / "cache")
        settings.cache_clear()
        with on_s3(folder) as proxy:
            for set_ in SETS:
                _measured(result, proxy, *_vectors(load(set_.real or name), set_, folder), set_)
    return result


def _measured(
    result: Result,
    proxy: Any,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    made: "ColdSet",
) -> None:
    _require_built(vectors, made)
    exact, _ = exact_answers(queries, vectors, NEIGHBOURS, "l2", threads=2)
    farthest = np.array(
        [
            np.sqrt(((vectors[ids[-1]] - query) ** 2).sum())
            for ids, query in zip(exact, queries, strict=True)
        ],
        np.float32,
    )[:, None] * (1 + 1e-5)
    mine = _Ours(made, queries, farthest)
    ours = {delay: _first_answers(proxy, delay, mine.ask, queries) for delay in DELAYS}
    facts = {
        delay: f"{made.title}, {delay * 1000:.0f} ms a request: {_told(ours[delay], mine.size)}, "
        f"{mine.reached}"
        for delay in DELAYS
    }
    if made.form == "none":  # LanceDB has no such index: its own keeps vectors
        result.facts += facts.values()
        return
    lance, lance_size, effort = _lance(proxy.endpoint, made, vectors, queries, farthest)
    theirs = {delay: _first_answers(proxy, delay, lance, queries) for delay in DELAYS}
    result.facts += [
        f"{fact}; LanceDB: {_told(theirs[delay], lance_size)}, {effort}"
        for delay, fact in facts.items()
    ]
    if made.is_held_to_bounds:
        note = f"{made.title}; {mine.reached}; {SHOWN * 1000:.0f} ms a request"
        result.rows += _rows(ours[SHOWN], mine, theirs[SHOWN], note, effort)


@dataclass(frozen=True)
class ColdSet:
    """Rows, and how an index has their vectors.

    Attributes:
        name: of its table.
        title: what it is, for people.
        is_held_to_bounds: whether its figures are.
        real: the set whose rows are searched as they are; empty: rows are mixed of real ones.
        form: in which the index stores vectors.
    """

    name: str
    title: str
    is_held_to_bounds: bool
    real: str = ""
    form: str = "float32"


GLOSSES = "gloss-384d-117k"
SETS = (
    ColdSet("glosses", TITLES[GLOSSES], False, GLOSSES),
    ColdSet("lean_glosses", f"{TITLES[GLOSSES]}, `vectors: none`", False, GLOSSES, "none"),
    ColdSet("million", f"{MIXED_ROWS:,} rows × {MIXED_DIMENSION}, mixed of real ones", True),
)


def _vectors(
    data: DataSet, made: ColdSet, folder: Path
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return a set's vectors, and queries; those mixed are so in the same way of the same rows."""
    if made.real:
        return data.vectors, data.queries[:RECALL_QUERIES]
    path = folder / f"{made.name}.npy"
    if not path.exists():
        narrow = np.ascontiguousarray(data.vectors[:, :MIXED_DIMENSION])
        enlarged(narrow, MIXED_ROWS + RECALL_QUERIES, path)
    both = np.load(path, mmap_mode="r")
    return both[:MIXED_ROWS], np.array(both[MIXED_ROWS:])


def _require_built(vectors: NDArray[np.float32], made: ColdSet) -> None:
    """Make a set's table and index, unless they are there; what is left of an attempt goes."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    from puffin_ann import open_index
    from puffin_ann.errors import PuffinAnnError
    from puffin_ann.lifecycle.runtime.runners import InProcess
    from puffin_ann.settings import settings

    table = f"{lakehouse.CATALOG}.vectors.{made.name}"
    with suppress(PuffinAnnError):
        if open_index(table, "bench", cache="none").view.coverage == 1.0:
            return
    with suppress(NoSuchTableError):
        load_catalog(lakehouse.CATALOG).drop_table(f"vectors.{made.name}")
    lakehouse.create_table(vectors, name=made.name)
    # In one shard: four would be so small that each is brought before it answers.
    lean = {"algorithm": "ivf_pq", "vectors": "none", "shards": 1} if made.form == "none" else {}
    declaration = lakehouse.declared(table=table, partitions_per_shard=CELLS, **lean)
    lakehouse.build(declaration, f"build-{uuid4().hex[:8]}", InProcess())
    shutil.rmtree(settings().cache_dir)  # the gate had shards there


class _Ours:
    """An index as it is asked first, and what it reaches.

    Attributes:
        size: bytes of the index.
        recall: of answers by ranges.
        reached: that, for people.
    """

    def __init__(
        self, made: ColdSet, queries: NDArray[np.float32], farthest: NDArray[np.float32]
    ) -> None:
        self._table = f"{lakehouse.CATALOG}.vectors.{made.name}"
        index = self._open()
        distances = [
            index.search(query, NEIGHBOURS).column("distance").to_numpy() for query in queries
        ]
        self.recall = float((np.array(distances) <= farthest).mean())
        self.size, routing = index.version.length, index.version.routing
        self.reached = (
            f"recall@10 {self.recall:.3f} ({routing.scan_partitions} of {routing.cells.count} "
            "cells)"
        )
        if made.form == "none":
            told = json.loads(
                self._open().search(queries[0], NEIGHBOURS).schema.metadata[b"puffin_ann"]
            )
            self.reached = (
                f"recall@10 {self.recall:.3f} (width {routing.search_width}); of it "
                f"{told['bytes_by_ranges'] / 1e6:.2f} MB are of the index, the others row groups "
                "of the table"
            )

    def _open(self) -> Any:
        from puffin_ann import open_index

        return open_index(self._table, "bench", cache="none")

    def ask(self, query: NDArray[np.float32]) -> Callable[[], Any]:
        """Return what answers a query as the first one, the table's metadata being loaded."""
        from puffin_ann import open_index
        from puffin_ann.lake.catalog.tables import load_table
        from puffin_ann.lake.read.data.column_chunks import KEPT

        loaded = load_table(self._table)
        KEPT.clear()  # vectors that were read of the table, where the index has none
        return lambda: open_index(loaded, "bench", cache="none").search(query, NEIGHBOURS)


def _rows(
    shown: list[Found], mine: _Ours, theirs: list[Found], note: str, effort: str
) -> list[Row]:
    share = 100 * median(answer.length for answer in shown) / mine.size
    ours, peer = (median(answer.seconds for answer in found) for found in (shown, theirs))
    return [
        _bound("rounds", "round trips", max(answer.rounds for answer in shown), 4, 4, "", note),
        _bound("bytes", "bytes ÷ those of the index", share, 5, 2, "%", note),
        _bound("seconds", "time", 1000 * ours, 500, 300, "ms", note),
        Row(
            key="cold-recall",
            what="first answer from S3, no shard on local disk: recall@10",
            ours=f"{mine.recall:.3f}",
            theirs="–",
            measured=mine.recall,
            least=RECALL,
            aim=RECALL,
            unit="",
            note=note,
        ),
        Row(
            key="cold-lance",
            what="first answer from S3, no shard on local disk: time ÷ LanceDB (IVF_PQ)",
            ours=f"{1000 * ours:.0f} ms",
            theirs=f"{1000 * peer:.0f} ms",
            measured=ours / peer,
            least=1.0,
            aim=0.7,
            below=True,
            note=f"{note}; LanceDB {effort}",
        ),
    ]


def _bound(
    key: str, what: str, measured: float, least: float, aim: float, unit: str, note: str
) -> Row:
    return Row(
        key=f"cold-{key}",
        what=f"first answer from S3, no shard on local disk: {what}",
        ours=f"{measured:.3g} {unit}".strip(),
        theirs="–",
        measured=measured,
        least=least,
        aim=aim,
        below=True,
        unit=unit or "×",
        note=note,
    )


def _told(found: list[Found], size: int) -> str:
    length = median(answer.length for answer in found)
    return (
        f"{1000 * median(answer.seconds for answer in found):.0f} ms, at most "
        f"{max(answer.rounds for answer in found)} round trips, "
        f"{median(answer.requests for answer in found):.0f} requests, {length / 1e6:.2f} MB, "
        f"{100 * length / size:.2f} % of the index"
    )


def _first_answers(
    proxy: Any, delay: float, ask: Callable[[NDArray[np.float32]], Any], queries: Any
) -> list[Found]:
    """Ask some queries, each as the first one."""
    settle()
    found = []
    for query in queries[:FIRST_QUERIES]:
        proxy.hold_back(0.0)
        prepared = ask(query)
        proxy.hold_back(delay)
        began = time.perf_counter()
        prepared()
        seconds = time.perf_counter() - began
        found.append(Found(seconds, proxy.rounds(), len(proxy.requests), proxy.bytes))
    proxy.hold_back(0.0)
    return found


def _lance(
    endpoint: str,
    made: ColdSet,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    farthest: NDArray[np.float32],
) -> tuple[Callable[[NDArray[np.float32]], Any], int, str]:
    """Return how LanceDB is asked first, its index's and vectors' bytes, and at which effort."""
    import lancedb

    from tests.support.servers import object_store

    stored = object_store.properties(endpoint)
    options = {
        "endpoint": endpoint,
        "aws_access_key_id": stored["s3.access-key-id"],
        "aws_secret_access_key": stored["s3.secret-access-key"],
        "region": stored["s3.region"],
        "allow_http": "true",
    }
    prefix = f"lance-{made.name}"
    place = f"s3://{object_store.BUCKET}/{prefix}"
    connection = lancedb.connect(place, storage_options=options)
    if lance_tables.NAME in connection.table_names():
        table = connection.open_table(lance_tables.NAME)
    else:
        table = lance_tables.create_table(connection, vectors)
        lance_tables.index_by_lists(table, vectors.shape[1], 4 * CELLS)

    def search(table: Any, query: NDArray[np.float32], probes: int, refine: int) -> NDArray[Any]:
        found = table.search(query).distance_type("l2").limit(NEIGHBOURS).nprobes(probes)
        found = found.refine_factor(refine).select(["id", "_distance"]).to_arrow()
        squared: NDArray[np.float32] = found.column("_distance").to_numpy()
        return np.sqrt(squared)

    probes, refine, recall = 4, 4, 0.0
    while recall < RECALL and probes < 4 * CELLS:
        probes, refine = round(probes * 1.5), min(20, refine + 2)
        hits = [
            int((search(table, query, probes, refine) <= far).sum())
            for query, far in zip(queries, farthest, strict=True)
        ]
        recall = sum(hits) / (len(queries) * NEIGHBOURS)

    def ask(query: NDArray[np.float32]) -> Callable[[], Any]:
        fresh = lancedb.connect(place, storage_options=options, session=lancedb.Session())
        return lambda: search(fresh.open_table(lance_tables.NAME), query, probes, refine)

    size = _stored(endpoint, f"{prefix}/")
    return ask, size, f"recall@10 {recall:.3f} (nprobes {probes}, refine_factor {refine})"


def _stored(endpoint: str, prefix: str) -> int:
    """Return the bytes of the objects under a prefix."""
    from tests.support.servers import object_store

    pages = object_store.client(endpoint).get_paginator("list_objects_v2")
    found = pages.paginate(Bucket=object_store.BUCKET, Prefix=prefix)
    return sum(item["Size"] for page in found for item in page.get("Contents", ()))
