"""Searches with a condition: against exact search of the rows allowed, none at all, and peers.

A condition allows a share of the rows: drawn at random; or those at one end of the axis along which
the vectors vary most, asked for by queries of that end (correlated) or of the other one
(anti-correlated). Which rows satisfy it is known from a search before, but copies of a shard's rows
are let go of before each time: to gather them counts. Signs of rows, which conditions share, are
kept from cell to cell, as an open index does; what it takes to make them is told.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import cycle, permutations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import lakehouse
from benchmarks.condition_cells import Cell, Timed, over_cells, row, told
from benchmarks.condition_peers import (
    RECALL,
    Answered,
    Asked,
    Faiss,
    Lance,
    least_effort,
    told_of_graphs,
)
from benchmarks.data import NEIGHBOURS, DataSet, load
from benchmarks.results import Result
from benchmarks.settle import settle
from puffin_ann.ann.exact import brute_force

SHARES = (50.0, 10.0, 1.0, 0.1)
"""Of the rows, in percent."""
KINDS = ("independent", "correlated", "anti-correlated")
AT_AN_END = 100
"""Queries of an end of the axis."""
SINGLE = 100
LANCE_QUERIES, FAISS_QUERIES = 20, 100
LEAST_ROUNDS, ENOUGH_SECONDS = 3, 8.0
"""After so many rounds that took so long, no further ones are timed."""


def measure(name: str, rounds: int) -> Result:
    """Build the index and its peers over a set, and search them in every cell.

    They are made in a folder of the set in the one that BENCH_KEPT names, where it does, and found
    there by the next run: of a million rows to make them takes most of the time.
    """
    result = Result(family="conditions")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(os.environ.get("BENCH_KEPT") or temporary) / name
        folder.mkdir(parents=True, exist_ok=True)
        data = load(name, folder)
        columns = _columns(data.vectors)
        lakehouse.configure(folder)
        index = _index(data, columns)
        lance, faiss = Lance(data.vectors, columns, folder), Faiss(data.vectors, folder)
        settle()
        cells = []
        for kind in KINDS:
            for share in SHARES:
                asked = _asked(data, columns, kind, share)
                cells.append(
                    Cell(
                        kind,
                        share,
                        _recall(index, asked),
                        _timed(index, asked, max(6, rounds), is_single=False),
                        _timed(index, asked, max(6, rounds), is_single=True),
                        *_at_least_effort(index, asked, rounds),
                        lance.answer(_few(asked, LANCE_QUERIES), RECALL),
                        faiss.answer(_few(asked, FAISS_QUERIES), RECALL, rounds),
                    )
                )
                result.facts.append(f"{data.title}, {told(cells[-1])}")
        result.rows += [row(data, cell) for cell in cells] + over_cells(data, cells)
        result.facts += [_signs(data, index), *_cold(data, index)]
        result.facts += told_of_graphs(data.title, len(data.vectors))
    return result


def _columns(vectors: NDArray[np.float32]) -> dict[str, NDArray[np.int64]]:
    """Return columns by which conditions choose a share: ranks of rows, and the file's number."""
    rows = len(vectors)
    draw = np.random.default_rng(7).permutation(rows)
    places = _along_axis(vectors, vectors).argsort(kind="stable")
    place = np.empty(rows, np.int64)
    place[places] = np.arange(rows)
    part = np.concatenate(
        [
            np.full(len(numbers), at)
            for at, numbers in enumerate(np.array_split(np.arange(rows), lakehouse.FILES))
        ]
    )
    return {"draw": draw, "place": place, "unindexed": draw, "part": part}


def _along_axis(vectors: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return where rows lie along the axis on which vectors vary most."""
    middle = vectors.mean(axis=0, dtype=np.float64)
    spread = np.cov(vectors.T)
    axis = np.linalg.eigh(spread)[1][:, -1]
    axis *= np.sign(axis[np.abs(axis).argmax()])
    found: NDArray[np.float64] = (rows - middle) @ axis
    return found


def _asked(data: DataSet, columns: dict[str, NDArray[np.int64]], kind: str, share: float) -> Asked:
    column = "draw" if kind == "independent" else "place"
    most = round(len(data.vectors) * share / 100)
    queries = data.queries
    if kind != "independent":
        order = _along_axis(data.vectors, queries).argsort(kind="stable")
        chosen = order[:AT_AN_END] if kind == "correlated" else order[-AT_AN_END:]
        queries = queries[chosen]
    allowed = columns[column] < most
    _, distances = brute_force.search(queries, data.vectors[allowed], NEIGHBOURS, "l2", threads=2)
    farthest = distances[:, -1:] * np.float32(1 + 1e-5)
    return Asked(queries, f"{column} < {most}", allowed, farthest)


def _few(asked: Asked, queries: int) -> Asked:
    few = slice(queries)
    return Asked(asked.queries[few], asked.where, asked.allowed, asked.farthest[few])


def _index(data: DataSet, columns: dict[str, NDArray[np.int64]]) -> Any:
    """Return the index, built on all cores unless it is kept, to be searched on one."""
    from puffin_ann.errors import PuffinAnnError
    from puffin_ann.lifecycle.runtime.runners import InProcess
    from puffin_ann.search.open_index import open_index
    from puffin_ann.settings import settings

    index = None
    with suppress(PuffinAnnError):
        index = open_index(lakehouse.TABLE, "bench")
    if index is None:
        lakehouse.create_table(data.vectors, numbers=columns, partitioned_by="part")
        lakehouse.build(lakehouse.declared(include=["draw", "place"]), "bench", InProcess())
    os.environ["PUFFIN_ANN_THREADS"] = "1"
    settings.cache_clear()
    index = open_index(lakehouse.TABLE, "bench")
    index.warm()
    return index


def _recall(index: Any, asked: Asked) -> float:
    """Return the lesser recall of a batch and of queries one a call, nothing known of others."""
    from puffin_ann.search.conditions.sifted import Sifted

    found = []
    for step in (len(asked.queries), 1):
        _let_go(index, asked.where)
        index._allowed(asked.where).sifted = Sifted()
        few = asked if step > 1 else _few(asked, SINGLE)
        parts = np.array_split(few.queries, len(few.queries) // step)
        distances = np.concatenate([_distances(index, part, asked.where) for part in parts])
        found.append(few.recall(distances))
    return min(found)


def _at_least_effort(index: Any, asked: Asked, rounds: int) -> tuple[Answered, Answered]:
    """Search at the least width that reaches the recall, in a batch and one query a call."""

    def search(queries: NDArray[np.float32], effort: int) -> NDArray[np.float32]:
        _let_go(index, asked.where)
        return _distances(index, queries, asked.where, effort)

    batch = least_effort(asked, search, RECALL, rounds, "width")
    width, alone = int(batch.setting.rpartition(" ")[2]), []
    for _ in range(rounds):
        _let_go(index, asked.where)
        began = time.perf_counter()
        for query in asked.queries[:SINGLE]:
            index.search(query, NEIGHBOURS, where=asked.where, width=width)
        alone.append((time.perf_counter() - began) / len(asked.queries[:SINGLE]))
    return batch, replace(batch, seconds=median(alone))


def _distances(
    index: Any, queries: NDArray[np.float32], where: str | None, width: int | None = None
) -> NDArray[np.float32]:
    found = index.search(queries, NEIGHBOURS, where=where, width=width)
    found = found.column("distance").to_numpy()
    distances: NDArray[np.float32] = found.reshape(len(queries), NEIGHBOURS)
    return distances


def _timed(index: Any, asked: Asked, rounds: int, *, is_single: bool) -> Timed:
    """Time the ways in turn, and return the median of each; nothing is gathered beforehand."""
    from puffin_ann.ann.signs import sign_rows
    from puffin_ann.search.conditions.ways import Way

    queries = asked.queries[:SINGLE] if is_single else asked.queries
    step = 1 if is_single else len(queries)
    calls = [queries[at : at + step] for at in range(0, len(queries), step)]

    def ours() -> None:
        for call in calls:
            index.search(call, NEIGHBOURS, where=asked.where)

    def compared() -> None:
        index._shards.way = Way.COMPARE
        least, sign_rows.LEAST_NUMBERS = sign_rows.LEAST_NUMBERS, sys.maxsize  # which miss some
        try:
            ours()
        finally:
            index._shards.way = None
            sign_rows.LEAST_NUMBERS = least

    def unfiltered() -> None:
        for call in calls:
            index.search(call, NEIGHBOURS)

    found: dict[Callable[[], None], list[float]] = {ours: [], compared: [], unfiltered: []}
    orders = cycle(permutations(found))  # what the one before left in caches is nobody's gain
    ours()  # rows that satisfy the condition are known from here on
    for number in range(rounds):
        if number >= LEAST_ROUNDS and len(queries) * sum(map(sum, found.values())) > ENOUGH_SECONDS:
            break
        for run in next(orders):
            _let_go(index, asked.where)
            began = time.perf_counter()
            run()
            found[run].append((time.perf_counter() - began) / len(queries))
    return Timed(*(median(seconds) for seconds in found.values()))


def _let_go(index: Any, where: str) -> None:
    """Forget rows that were gathered under a condition, of each shard or of all, and who asked."""
    allowed = index._allowed(where)
    allowed.gathered, allowed.asked, allowed.settled = None, 0, 0.0
    allowed.decisions.clear()
    for rows in allowed._shards.all():
        rows._gathered = None
        rows.decisions.clear()


def _signs(data: DataSet, index: Any) -> str:
    """Tell what it takes to know all rows by their signs."""
    from puffin_ann.ann.core.metrics import METRICS
    from puffin_ann.ann.exact.row_addresses import RowAddresses
    from puffin_ann.ann.signs.row_codes import RowCodes, record_bytes

    shards = [shard.loaded.engine for shard in index._shards._opened.open_all()]
    counts = [len(shard.find_vectors(np.arange(0))[0]) for shard in shards]
    rows = RowAddresses.of_some(
        [shard.find_vectors(np.arange(count)) for shard, count in zip(shards, counts, strict=True)]
    )
    codes, began = RowCodes(METRICS[index.metric]), time.perf_counter()
    codes.records_of(rows)
    seconds = time.perf_counter() - began
    size = len(rows) * (record_bytes(rows.dimension) + 1)
    return (
        f"{data.title}: signs of all rows, which all conditions share and the cells keep, take "
        f"{1e3 * seconds:.0f} ms of one thread once, as they are asked for, and {size / 1e6:.1f} MB"
    )


def _cold(data: DataSet, index: Any) -> list[str]:
    """Tell what the first search by a condition takes, by where its rows are known from."""
    half, hundredth = len(data.vectors) // 2, len(data.vectors) // 100
    wheres = {
        "half of the rows": {
            "included columns": f"draw < {half}",
            "Parquet": f"unindexed < {half}",
            "partition values alone": f"part < {lakehouse.FILES // 2}",
        },
        # No partition is that small.
        "1 % of them": {
            "included columns": f"draw < {hundredth}",
            "Parquet": f"unindexed < {hundredth}",
        },
    }
    firsts = "; ".join(
        f"{share} allowed, first from "
        + ", ".join(_first_from(source, where, index, data) for source, where in sources.items())
        for share, sources in wheres.items()
    )
    return [
        f"{data.title}, one query, the index just opened, its shards on local disk and nothing of "
        f"the condition's columns kept: {firsts}"
    ]


def _first_from(source: str, where: str, index: Any, data: DataSet) -> str:
    first, again = zip(*(_first_and_again(index, data, where) for _ in range(5)), strict=True)
    return f"{source} {median(first) * 1e3:.1f} ms (again {median(again) * 1e3:.2f} ms)"


def _first_and_again(index: Any, data: DataSet, where: str) -> tuple[float, float]:
    from puffin_ann.lake.read.data.column_chunks import KEPT
    from puffin_ann.search.conditions.kept import MATCHING
    from puffin_ann.search.open_index import open_index

    MATCHING.clear()
    KEPT.clear()
    fresh = open_index(lakehouse.TABLE, index.name)
    fresh.search(data.queries[0], NEIGHBOURS)
    found = []
    for _ in range(2):
        began = time.perf_counter()
        fresh.search(data.queries[0], NEIGHBOURS, where=where)
        found.append(time.perf_counter() - began)
    return found[0], found[1]
