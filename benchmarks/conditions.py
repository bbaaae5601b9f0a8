"""Searches with a condition: against exact search of the rows allowed, none at all, and peers.

A condition allows a share of the rows: drawn at random; or those at one end of the axis along which
the vectors vary most, asked for by queries of that end (correlated) or of the other one
(anti-correlated). Which rows satisfy it is known from a search before, but copies of a shard's rows
are let go of before each time: to gather them counts.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import lakehouse
from benchmarks.condition_peers import Answered, Asked, Faiss, Lance
from benchmarks.data import NEIGHBOURS, DataSet, load
from benchmarks.results import Result, Row
from puffin_ann.ann.core import exact

SHARES = (50.0, 10.0, 1.0, 0.1)
"""Of the rows, in percent."""
KINDS = ("independent", "correlated", "anti-correlated")
AT_AN_END = 100
"""Queries of an end of the axis."""
SINGLE = 100
LANCE_QUERIES, FAISS_QUERIES = 20, 100
RECALL = 0.95
DRIFT = 1.05
"""What two runs of the same may differ by."""


@dataclass(frozen=True)
class Timed:
    """Seconds of a query, of each way that is compared: in a batch, or one a call."""

    ours: float
    exact: float
    unfiltered: float

    @property
    def ratio(self) -> float:
        """Of ours to the better of the others."""
        return self.ours / min(self.exact, self.unfiltered)


@dataclass(frozen=True)
class Cell:
    """What was measured of a kind of condition and a share."""

    kind: str
    share: float
    recall: float
    batch: Timed
    single: Timed
    lance: Answered
    faiss: Answered

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.kind} {self.share:g} %"


def measure(name: str, rounds: int) -> Result:
    """Build the index and its peers over a set, and search them in every cell."""
    os.environ["PUFFIN_ANN_THREADS"] = "1"
    from puffin_ann.settings import settings

    settings.cache_clear()
    data = load(name)
    columns = _columns(data.vectors)
    result = Result(family="conditions")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        lakehouse.configure(folder)
        index = _index(data, columns)
        lance, faiss = Lance(data.vectors, columns, folder), Faiss(data.vectors)
        cells = []
        for kind in KINDS:
            for share in SHARES:
                asked = _asked(data, columns, kind, share)
                cells.append(
                    Cell(
                        kind,
                        share,
                        asked.recall(_distances(index, asked.queries, asked.where)),
                        _timed(index, asked, max(5, rounds), is_single=False),
                        _timed(index, asked, max(3, rounds), is_single=True),
                        lance.answer(_few(asked, LANCE_QUERIES), RECALL),
                        faiss.answer(_few(asked, FAISS_QUERIES), RECALL, rounds),
                    )
                )
                result.facts.append(f"{data.title}, {_told(cells[-1])}")
        result.rows += [_row(data, cell) for cell in cells] + _over_cells(data, cells)
        result.facts += _cold(data, index)
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
    _, distances = exact.search(queries, data.vectors[allowed], NEIGHBOURS, "l2", threads=2)
    farthest = distances[:, -1:] * np.float32(1 + 1e-5)
    return Asked(queries, f"{column} < {most}", allowed, farthest)


def _few(asked: Asked, queries: int) -> Asked:
    few = slice(queries)
    return Asked(asked.queries[few], asked.where, asked.allowed, asked.farthest[few])


def _index(data: DataSet, columns: dict[str, NDArray[np.int64]]) -> Any:
    from puffin_ann.lifecycle.runtime.runners import InProcess
    from puffin_ann.search.open_index import open_index

    lakehouse.create_table(data.vectors, numbers=columns, partitioned_by="part")
    lakehouse.build(lakehouse.declared(include=["draw", "place"]), "bench", InProcess())
    index = open_index(lakehouse.TABLE, "bench")
    index.warm()
    return index


def _distances(index: Any, queries: NDArray[np.float32], where: str | None) -> NDArray[np.float32]:
    found = index.search(queries, NEIGHBOURS, where=where).column("distance").to_numpy()
    distances: NDArray[np.float32] = found.reshape(len(queries), NEIGHBOURS)
    return distances


def _timed(index: Any, asked: Asked, rounds: int, *, is_single: bool) -> Timed:
    """Time the ways in turn, and return the median of each; nothing is gathered beforehand."""
    from puffin_ann.search.conditions.ways import Way

    queries = asked.queries[:SINGLE] if is_single else asked.queries
    step = 1 if is_single else len(queries)
    calls = [queries[at : at + step] for at in range(0, len(queries), step)]

    def ours() -> None:
        for call in calls:
            index.search(call, NEIGHBOURS, where=asked.where)

    def compared() -> None:
        index._shards.way = Way.COMPARE
        try:
            ours()
        finally:
            index._shards.way = None

    def unfiltered() -> None:
        for call in calls:
            index.search(call, NEIGHBOURS)

    found: dict[Callable[[], None], list[float]] = {ours: [], compared: [], unfiltered: []}
    ours()  # rows that satisfy the condition are known from here on
    for _ in range(rounds):
        for run, seconds in found.items():
            _let_go(index, asked.where)
            began = time.perf_counter()
            run()
            seconds.append((time.perf_counter() - began) / len(queries))
    return Timed(*(median(seconds) for seconds in found.values()))


def _let_go(index: Any, where: str) -> None:
    """Have the rows of shards gathered again by the next search under a condition."""
    for rows in index._allowed(where)._shards.values():
        rows._gathered = None


def _row(data: DataSet, cell: Cell) -> Row:
    is_close = cell.share <= 1 or (cell.kind == "independent" and cell.share == 50)
    worse = max((cell.batch, cell.single), key=lambda timed: timed.ratio)
    return Row(
        key=f"conditions-{data.name}-{cell.kind}-{cell.share:g}",
        what=f"a condition that allows {cell.share:g} %, {cell.kind}, {data.title}: time ÷ the "
        "better of exact search of the rows allowed and search without a condition",
        ours=f"{worse.ours * 1e6:.0f} us",
        theirs=f"{min(worse.exact, worse.unfiltered) * 1e6:.0f} us",
        measured=worse.ratio,
        least=1.2 if is_close else 3.0,
        aim=1.0,
        below=True,
        note=f"recall@10 {cell.recall:.4f}; {cell.batch.ratio:.2f} in a batch and "
        f"{cell.single.ratio:.2f} one query a call, the greater of which counts",
    )


def _over_cells(data: DataSet, cells: list[Cell]) -> list[Row]:
    """Return what holds of all cells: the worst of each."""
    lowest = min(cells, key=lambda cell: cell.recall)
    slowest = max(cells, key=lambda cell: _to_exact(cell))
    lance = min(cells, key=lambda cell: cell.lance.seconds / cell.single.ours)
    faiss = min(cells, key=lambda cell: cell.faiss.seconds / cell.batch.ours)
    slower = max((slowest.batch, slowest.single), key=lambda timed: timed.ours / timed.exact)
    whole = f"a condition, {data.title}, the worst of {len(cells)} cells"
    return [
        Row(
            key=f"conditions-{data.name}-recall",
            what=f"{whole}: recall@10",
            ours=f"{lowest.recall:.4f}",
            theirs="–",
            measured=lowest.recall,
            least=RECALL,
            aim=RECALL,
            unit="",
            note=lowest.name,
        ),
        Row(
            key=f"conditions-{data.name}-exact",
            what=f"{whole}: time ÷ exact search of the rows allowed",
            ours=f"{slower.ours * 1e6:.0f} us",
            theirs=f"{slower.exact * 1e6:.0f} us",
            measured=_to_exact(slowest),
            least=DRIFT,
            aim=1.0,
            below=True,
            note=f"{slowest.name}; two runs of the same differ by a twentieth",
        ),
        Row(
            key=f"conditions-{data.name}-lance",
            what=f"{whole}: one query a call ÷ LanceDB (IVF_HNSW_SQ, prefilter, scalar index)",
            ours=f"{1 / lance.single.ours:,.0f}/s",
            theirs=f"{1 / lance.lance.seconds:,.0f}/s",
            measured=lance.lance.seconds / lance.single.ours,
            least=10,
            aim=30,
            note=f"{lance.name}; recall@10 {lance.recall:.3f} and {lance.lance.recall:.3f} "
            f"({lance.lance.setting})",
        ),
        Row(
            key=f"conditions-{data.name}-faiss",
            what=f"{whole}: a batch ÷ faiss (IVF-Flat or HNSW-Flat, IDSelectorBitmap)",
            ours=f"{1 / faiss.batch.ours:,.0f}/s",
            theirs=f"{1 / faiss.faiss.seconds:,.0f}/s",
            measured=faiss.faiss.seconds / faiss.batch.ours,
            least=1.0,
            aim=2.0,
            note=f"{faiss.name}; recall@10 {faiss.recall:.3f} and {faiss.faiss.recall:.3f} "
            f"({faiss.faiss.setting})",
        ),
    ]


def _to_exact(cell: Cell) -> float:
    return max(timed.ours / timed.exact for timed in (cell.batch, cell.single))


def _told(cell: Cell) -> str:
    batch, single = (
        f"{timed.ours * 1e6:.0f} us (exact {timed.exact * 1e6:.0f}, unfiltered "
        f"{timed.unfiltered * 1e6:.0f})"
        for timed in (cell.batch, cell.single)
    )
    return (
        f"{cell.name}: recall@10 {cell.recall:.4f}; in a batch {batch}, faiss "
        f"{cell.faiss.seconds * 1e6:.0f} us ({cell.faiss.setting}, {cell.faiss.recall:.3f}); one "
        f"query a call {single}, LanceDB {cell.lance.seconds * 1e6:.0f} us ({cell.lance.setting}, "
        f"{cell.lance.recall:.3f})"
    )


def _cold(data: DataSet, index: Any) -> list[str]:
    """Tell what the first search by a condition takes, by where its rows are known from."""
    half = len(data.vectors) // 2
    wheres = {
        "included columns": f"draw < {half}",
        "Parquet": f"unindexed < {half}",
        "partition values alone": f"part < {lakehouse.FILES // 2}",
    }
    told = []
    for source, where in wheres.items():
        first, again = zip(*(_first_and_again(index, data, where) for _ in range(5)), strict=True)
        told.append(f"{source} {median(first) * 1e3:.1f} ms, again {median(again) * 1e3:.2f} ms")
    return [
        f"{data.title}, one query, half of the rows allowed, the index just opened, its shards on "
        "local disk and nothing of the condition's columns kept: first from " + "; ".join(told)
    ]


def _first_and_again(index: Any, data: DataSet, where: str) -> tuple[float, float]:
    from puffin_ann.lake.read.column_chunks import KEPT
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
