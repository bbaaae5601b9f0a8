"""The first answer from a table on S3 whose shards are on no local disk: round trips, bytes, time.

A real S3 server, and a proxy before it that holds each request back. The library is imported and
its kernels are warm, the table's metadata is loaded; no shard was ever read. LanceDB reads the same
vectors from the same store through the same proxy.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import lakehouse
from benchmarks.data import NEIGHBOURS, ROOT, enlarged, load
from benchmarks.results import Result, Row
from benchmarks.settle import settle

ROWS = 1_000_000
DIMENSION = 128
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
    """Search a million made-up rows, and all real ones there are, on S3."""
    del rounds
    sys.path.insert(0, str(ROOT))
    os.environ["PATH"] += f"{os.pathsep}{ROOT / '.venv' / 'bin'}"
    from puffin_ann.settings import settings
    from tests.support import object_store

    data = load(name)
    result = Result(family="cold")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        os.environ["PUFFIN_ANN_CACHE_DIR"] = str(folder / "cache")
        os.environ["PUFFIN_ANN_RANGES_MIN_BYTES"] = "0"
        settings.cache_clear()
        with object_store.seaweedfs(folder / "s3") as endpoint:
            proxy = object_store.Proxy(endpoint)
            stored = object_store.properties(proxy.endpoint)
            prefix = f"PYICEBERG_CATALOG__{lakehouse.CATALOG.upper()}__"
            for key, value in stored.items():
                os.environ[prefix + key.upper().replace(".", "__").replace("-", "_")] = value
            lakehouse.configure(folder)
            os.environ[f"{prefix}WAREHOUSE"] = f"s3://{object_store.BUCKET}/warehouse"
            real, queries = data.vectors, data.queries
            _measured(result, proxy, folder, stored, real, queries, data.title)
            narrow = np.ascontiguousarray(real[:, :DIMENSION])
            made = enlarged(narrow, ROWS, folder / "rows.npy")
            asked = np.array(enlarged(narrow, RECALL_QUERIES, folder / "queries.npy"))
            title = f"{ROWS:,} rows × {DIMENSION}, mixed of those"
            _measured(result, proxy, folder, stored, made, asked, title, held_to_bounds=True)
            proxy.close()
    return result


def _measured(
    result: Result,
    proxy: Any,
    folder: Path,
    stored: dict[str, str],
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    title: str,
    *,
    held_to_bounds: bool = False,
) -> None:
    from puffin_ann import open_index
    from puffin_ann.lake.catalog.tables import load_table
    from puffin_ann.lifecycle.runtime.runners import InProcess

    table = lakehouse.create_table(vectors)
    lakehouse.build(
        lakehouse.declared(partitions_per_shard=CELLS), f"build-{len(vectors)}", InProcess()
    )
    queries = queries[:RECALL_QUERIES]

    def ask(query: NDArray[np.float32]) -> Callable[[], Any]:
        loaded = load_table(lakehouse.TABLE)
        return lambda: open_index(loaded, "bench", cache="none").search(query, NEIGHBOURS)

    exact = open_index(lakehouse.TABLE, "bench", cache="full")
    nearest = exact.search(queries, NEIGHBOURS, exhaustive=True).column("distance").to_numpy()
    farthest = nearest.reshape(len(queries), NEIGHBOURS)[:, -1:]
    shutil.rmtree(folder / "cache")
    (folder / "cache").mkdir(mode=0o700)
    index = open_index(lakehouse.TABLE, "bench", cache="none")
    size, version = index.version.length, index.version
    mine = np.array(
        [index.search(one, NEIGHBOURS).column("distance").to_numpy() for one in queries]
    )
    recall = float((mine <= farthest).mean())
    ours = {delay: _first_answers(proxy, delay, ask, queries) for delay in DELAYS}
    lance, lance_size, effort = _lance(stored, vectors, queries, farthest)
    theirs = {delay: _first_answers(proxy, delay, lance, queries) for delay in DELAYS}
    routing = version.routing
    reached = f"recall@10 {recall:.3f} ({routing.scan_partitions} of {routing.cells.count} cells)"
    for delay in DELAYS:
        result.facts.append(
            f"{title}, {delay * 1000:.0f} ms a request: {_told(ours[delay], size)}, {reached}; "
            f"LanceDB: {_told(theirs[delay], lance_size)}, {effort}"
        )
    if held_to_bounds:
        shown = ours[SHOWN]
        note = f"{title}; recall@10 {recall:.3f}; {SHOWN * 1000:.0f} ms a request"
        result.rows += [
            _bound("rounds", "round trips", max(one.rounds for one in shown), 4, 4, "", note),
            _bound(
                "bytes",
                "bytes ÷ those of the index",
                100 * median(one.length for one in shown) / size,
                5,
                2,
                "%",
                note,
            ),
            _bound(
                "seconds",
                "time",
                1000 * median(one.seconds for one in shown),
                500,
                300,
                "ms",
                note,
            ),
        ]
        peer = median(one.seconds for one in theirs[SHOWN])
        mean = median(one.seconds for one in shown)
        result.rows.append(
            Row(
                key="cold-lance",
                what="first answer from S3, no shard on local disk: time ÷ LanceDB (IVF_PQ)",
                ours=f"{1000 * mean:.0f} ms",
                theirs=f"{1000 * peer:.0f} ms",
                measured=mean / peer,
                least=1.0,
                aim=0.7,
                below=True,
                note=f"{note}; LanceDB {effort}",
            )
        )
    table.catalog.drop_table(table.name())


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
    length = median(one.length for one in found)
    return (
        f"{1000 * median(one.seconds for one in found):.0f} ms, at most "
        f"{max(one.rounds for one in found)} round trips, "
        f"{median(one.requests for one in found):.0f} requests, {length / 1e6:.2f} MB, "
        f"{100 * length / size:.2f} % of the index"
    )


def _first_answers(
    proxy: Any, delay: float, ask: Callable[[NDArray[np.float32]], Any], queries: Any
) -> list[Found]:
    """Ask some queries, each as the first one."""
    settle()
    found = []
    for query in queries[:FIRST_QUERIES]:
        proxy.delay = 0.0
        prepared = ask(query)
        proxy.delay = delay
        proxy.reset()
        began = time.perf_counter()
        prepared()
        seconds = time.perf_counter() - began
        found.append(Found(seconds, proxy.rounds(), len(proxy.requests), proxy.bytes))
    proxy.delay = 0.0
    return found


def _lance(
    stored: dict[str, str],
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    farthest: NDArray[np.float32],
) -> tuple[Callable[[NDArray[np.float32]], Any], int, str]:
    """Return how LanceDB is asked first, its index's and vectors' bytes, and at which effort."""
    import lancedb

    options = {
        "endpoint": stored["s3.endpoint"],
        "aws_access_key_id": stored["s3.access-key-id"],
        "aws_secret_access_key": stored["s3.secret-access-key"],
        "region": stored["s3.region"],
        "allow_http": "true",
    }
    place = f"s3://bucket/lance-{len(vectors)}"
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    rows = pa.table({"id": pa.array(np.arange(len(vectors))), "vector": fixed})
    made = lancedb.connect(place, storage_options=options).create_table("rows", rows)
    made.create_index(
        metric="l2",
        vector_column_name="vector",
        index_type="IVF_PQ",
        num_partitions=4 * CELLS,
        num_sub_vectors=vectors.shape[1] // 4,
    )

    def search(table: Any, query: NDArray[np.float32], probes: int, refine: int) -> NDArray[Any]:
        found = table.search(query).distance_type("l2").limit(NEIGHBOURS).nprobes(probes)
        found = found.refine_factor(refine).select(["id", "_distance"]).to_arrow()
        squared: NDArray[np.float32] = found.column("_distance").to_numpy()
        return np.sqrt(squared)

    probes, refine, recall = 4, 4, 0.0
    few, reach = queries[:20], farthest[:20] * (1 + 1e-5)
    while recall < RECALL and probes < 4 * CELLS:
        probes, refine = round(probes * 1.5), min(20, refine + 2)
        hits = [
            int((search(made, query, probes, refine) <= far).sum())
            for query, far in zip(few, reach, strict=True)
        ]
        recall = sum(hits) / (len(few) * NEIGHBOURS)

    def ask(query: NDArray[np.float32]) -> Callable[[], Any]:
        connection = lancedb.connect(place, storage_options=options, session=lancedb.Session())
        return lambda: search(connection.open_table("rows"), query, probes, refine)

    size = _stored(stored, f"lance-{len(vectors)}/")
    return ask, size, f"recall@10 {recall:.3f} (nprobes {probes}, refine_factor {refine})"


def _stored(stored: dict[str, str], prefix: str) -> int:
    """Return the bytes of the objects under a prefix."""
    from tests.support import object_store

    client = object_store.client(stored["s3.endpoint"])
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=object_store.BUCKET, Prefix=prefix
    )
    return sum(item["Size"] for page in pages for item in page.get("Contents", ()))
