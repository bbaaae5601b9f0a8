"""Four shards behind `open_index`, against one bare graph, and against LanceDB."""

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import engines, lakehouse, lance_tables
from benchmarks.data import NEIGHBOURS, DataSet, load
from benchmarks.race import Contender, Curve, Point, effort_at, race, rate_at
from benchmarks.results import Result, Row
from puffin_ann.ann.exact import brute_force
from puffin_ann.settings import settings

RECALL = 0.95
SINGLE_QUERIES = 300
MORE_NEIGHBOURS = 100


def measure(name: str, rounds: int) -> Result:
    """Build the index and its peers, and search them."""
    data = load(name)
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        lakehouse.configure(folder)
        index = _index(data)
        _, built = engines.build_ours("vamana", data.vectors, folder)
        shard, _ = engines.through_blob("vamana", built, folder)
        result = Result(family="sharded")
        result.rows.append(_against_bare(index, shard, data, rounds, result.facts))
        result.rows.append(_of_more(index, data))
        result.rows.append(_against_lance(index, data, folder, rounds))
    return result


def _index(data: DataSet) -> Any:
    from puffin_ann.lifecycle.runtime.runners import InProcess
    from puffin_ann.search.open_index import open_index

    lakehouse.create_table(data.vectors)
    lakehouse.build(lakehouse.declared(), "bench", InProcess())
    return open_index(lakehouse.TABLE, "bench")


def _ids(index: Any, queries: NDArray[np.float32], **effort: int) -> NDArray[np.int64]:
    """Search as a user does, and return row numbers by the locators answered."""
    found = index.search(queries, NEIGHBOURS, **effort)
    return _numbers(index, found).reshape(len(queries), NEIGHBOURS)


def _numbers(index: Any, found: pa.Table) -> NDArray[np.int64]:
    """Turn locators into numbers of rows: files hold them in order, one after the other."""
    locator = found.column("locator").combine_chunks()
    starts = index.__dict__.setdefault("_bench_starts", _starts(index))
    files = locator.field("file").to_pylist()
    groups, offsets = (locator.field(field).to_numpy() for field in ("row_group", "row_offset"))
    first = np.array([starts[file] for file in files])
    numbers: NDArray[np.int64] = first + groups * lakehouse.ROW_GROUP_ROWS + offsets
    return numbers


def _starts(index: Any) -> dict[str, int]:
    starts = {}
    for file in index.view.files:
        table = pq.read_table(file.removeprefix("file://"), columns=["id"])
        starts[file] = table.column("id")[0].as_py()
    return starts


def _against_bare(index: Any, shard: Any, data: DataSet, rounds: int, facts: list[str]) -> Row:
    """Compare at the recall that the index reaches with its defaults."""
    recall = data.recall(_ids(index, data.queries))
    facts.append(
        f"the index of 4 shards, by its defaults (width {index.version.routing.search_width}, "
        f"{index.version.routing.probe_partitions} partitions): recall@10 {recall:.4f}"
    )
    index.search(data.queries, NEIGHBOURS)
    threads = settings().thread_count
    bare = engines.ours("vamana", shard, threads)
    curve = race([bare], data, rounds=1)[bare.name]
    width = effort_at(curve, recall)
    pairs = []
    for _ in range(max(5, rounds)):
        began = time.perf_counter()
        index.search(data.queries, NEIGHBOURS)
        mine = time.perf_counter() - began
        theirs = _time_at(bare, data, curve, recall)
        pairs.append((mine, theirs))
    mine, theirs = (median(column) for column in zip(*pairs, strict=True))
    return Row(
        key="sharded-bare",
        what="4 shards through `open_index(...).search`, build's defaults, batch of 1,000 ÷ one "
        "unsharded graph searched bare, equal recall",
        ours=f"{len(data.queries) / mine:,.0f}/s",
        theirs=f"{len(data.queries) / theirs:,.0f}/s",
        measured=theirs / mine,
        least=0.85,
        aim=0.95,
        note=f"recall@10 {recall:.4f} on both sides; width {width} in the bare graph; both on "
        f"{threads} threads",
    )


def _of_more(index: Any, data: DataSet) -> Row:
    """Tell which part of ten times as many neighbours is found by the defaults."""
    _, nearest = brute_force.search(data.queries, data.vectors, MORE_NEIGHBOURS, "l2", threads=2)
    found = index.search(data.queries, MORE_NEIGHBOURS).column("distance").to_numpy()
    is_near = found.reshape(nearest.shape) <= nearest[:, -1:] * np.float32(1 + 1e-5)
    recall = float(is_near.mean())
    return Row(
        key="sharded-more",
        what=f"4 shards, build's defaults, {MORE_NEIGHBOURS} neighbours where the gate asked for "
        f"{NEIGHBOURS}: recall",
        ours=f"{recall:.4f}",
        theirs="–",
        measured=recall,
        least=RECALL,
        aim=RECALL,
        unit="",
    )


def _time_at(bare: Contender, data: DataSet, curve: Curve, recall: float) -> float:
    """Time the two widths on either side of a recall, and return the seconds between them."""
    above = effort_at(curve, recall) or curve[-1].effort
    below = max((point.effort for point in curve if point.recall < recall), default=above)
    points = []
    for effort in (below, above):
        began = time.perf_counter()
        found = bare.search(data.queries, effort)
        seconds = time.perf_counter() - began
        points.append(Point(effort, data.recall(found), [len(data.queries) / seconds]))
    rate = rate_at(points, recall) or points[-1].rate
    return len(data.queries) / rate


def _against_lance(index: Any, data: DataSet, folder: Path, rounds: int) -> Row:
    """Compare one query a call, each at its effort for the recall."""
    table = _lance_table(data, folder)

    def lance(queries: NDArray[np.float32], effort: int) -> NDArray[np.int64]:
        found = [
            table.search(query)
            .distance_type("l2")
            .limit(NEIGHBOURS)
            .nprobes(1)
            .ef(effort)
            .select(["id", "_distance"])
            .to_arrow()
            .column("id")
            .to_numpy()
            for query in queries
        ]
        return np.stack(found)

    def mine(queries: NDArray[np.float32], effort: int) -> NDArray[np.int64]:
        return np.concatenate(
            [_ids(index, queries[at : at + 1], width=effort) for at in range(len(queries))]
        )

    few = DataSet(
        data.name, data.vectors, data.queries[:SINGLE_QUERIES], data.truth[:SINGLE_QUERIES]
    )
    efforts = [
        _effort_for(Contender("ours", mine), few),
        _effort_for(Contender("LanceDB", lance), few),
    ]
    times: list[tuple[float, float]] = []
    for _ in range(rounds):
        began = time.perf_counter()
        for query in few.queries:
            index.search(query, NEIGHBOURS, width=efforts[0][0])
        between = time.perf_counter()
        lance(few.queries, efforts[1][0])
        times.append((between - began, time.perf_counter() - between))
    ours, theirs = (median(column) for column in zip(*times, strict=True))
    return Row(
        key="sharded-lance",
        what="the same, one query a call ÷ LanceDB (IVF_HNSW_SQ): locators and distances from "
        "ours, ids and distances from theirs",
        ours=f"{len(few.queries) / ours:,.0f}/s",
        theirs=f"{len(few.queries) / theirs:,.0f}/s",
        measured=theirs / ours,
        least=10,
        aim=30,
        note=f"recall@10 {efforts[0][1]:.3f} (width {efforts[0][0]}) and {efforts[1][1]:.3f} "
        f"(ef {efforts[1][0]})",
    )


def _effort_for(one: Contender, data: DataSet) -> tuple[int, float]:
    effort, recall = NEIGHBOURS, 0.0
    while effort <= one.most:
        recall = data.recall(one.search(data.queries, effort))
        if recall >= RECALL:
            break
        effort = round(effort * 1.3) + 1
    return effort, recall


def _lance_table(data: DataSet, folder: Path) -> Any:
    table = lance_tables.create_table(lance_tables.connect(folder), data.vectors)
    lance_tables.index_by_graph(table)
    return table
