"""Peers of searches with a condition: LanceDB's prefilter, and faiss with a selector of ids."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import lance_tables
from benchmarks.data import NEIGHBOURS

Distances = NDArray[np.float32]
RECALL = 0.95
WIDEST = 1000
"""Efforts end here, whether the recall is reached or not."""
REFINED = 2
GRAPH_ROWS = 500_000
"""Of more rows peers build no graph, which takes each of them many minutes, but lists alone."""
LISTS_REFINED = 20


def told_of_graphs(title: str, rows: int) -> list[str]:
    """Tell where peers have no graph: a setting named beside a figure does not say that."""
    if rows <= GRAPH_ROWS:
        return []
    return [
        f"{title}: of more than {GRAPH_ROWS:,} rows peers have lists, LanceDB IVF_PQ and faiss "
        "IVF-Flat, and no graph, which takes each of them many minutes to build"
    ]


@dataclass(frozen=True)
class Asked:
    """What is asked: queries, a condition, and what is true.

    Attributes:
        queries: (q, d) float32.
        where: the condition, as text.
        allowed: (n,) bool, the rows that satisfy it.
        farthest: (q, 1) float32, distance of the last true neighbour, and a little more.
    """

    queries: NDArray[np.float32]
    where: str
    allowed: NDArray[np.bool_]
    farthest: Distances

    def recall(self, distances: Distances) -> float:
        """Return the share of answers that are as near as the true ones are."""
        return float((distances <= self.farthest[: len(distances)]).mean())


@dataclass(frozen=True)
class Answered:
    """How a peer answered: seconds a query, recall@10 and the setting that it took."""

    seconds: float
    recall: float
    setting: str


def least_effort(
    asked: Asked,
    search: Callable[[NDArray[np.float32], int], Distances],
    target: float,
    rounds: int,
    what: str,
) -> Answered:
    """Raise the effort until the recall is reached, and time that effort."""
    effort = NEIGHBOURS
    while True:
        recall = asked.recall(search(asked.queries, effort))
        if recall >= target or effort >= WIDEST:
            break
        effort = min(WIDEST, round(effort * 1.5))
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        search(asked.queries, effort)
        seconds.append((time.perf_counter() - began) / len(asked.queries))
    return Answered(median(seconds), recall, f"{what} {effort}")


class Lance:
    """LanceDB: scalar indexes on the columns of the conditions, prefilter, one query a call.

    IVF_HNSW_SQ in one partition; of many rows, see `GRAPH_ROWS`, IVF_PQ with refinement.

    Args:
        vectors: (n, d) float32.
        numbers: columns by name, (n,) int64.
        folder: for its table, which is taken as it is if it is there.
    """

    def __init__(
        self, vectors: NDArray[np.float32], numbers: dict[str, NDArray[np.int64]], folder: Path
    ) -> None:
        self._has_graph = len(vectors) <= GRAPH_ROWS
        connection = lance_tables.connect(folder)
        if lance_tables.NAME in connection.table_names():
            self._table = connection.open_table(lance_tables.NAME)
            return
        self._table = lance_tables.create_table(connection, vectors, numbers)
        if self._has_graph:
            lance_tables.index_by_graph(self._table)
        else:
            lance_tables.index_by_lists(self._table, vectors.shape[1], int(np.sqrt(len(vectors))))
        for column in numbers:
            self._table.create_scalar_index(column, index_type="BTREE")

    def answer(self, asked: Asked, target: float) -> Answered:
        """Search at the least effort that reaches a recall."""

        def search(queries: NDArray[np.float32], effort: int) -> Distances:
            return np.stack([self._nearest(query, asked.where, effort) for query in queries])

        kind = "IVF_HNSW_SQ ef" if self._has_graph else "IVF_PQ nprobes"
        return least_effort(asked, search, target, 1, kind)

    def _nearest(self, query: NDArray[np.float32], where: str, effort: int) -> Distances:
        found = self._table.search(query).distance_type("l2").limit(NEIGHBOURS)
        if self._has_graph:
            # Distances are exact of what is refined: twice as many rows, no fewer than ef.
            found = found.nprobes(1).ef(max(effort, REFINED * NEIGHBOURS)).refine_factor(REFINED)
        else:
            found = found.nprobes(effort).refine_factor(LISTS_REFINED)
        found = found.where(where, prefilter=True)
        distances = found.select(["id", "_distance"]).to_arrow().column("_distance").to_numpy()
        short = np.full(NEIGHBOURS - len(distances), np.inf, np.float32)
        return np.append(np.sqrt(distances), short)


class Faiss:
    """faiss on one thread: IVF-Flat and HNSW-Flat, the rows allowed given by a bitmap.

    Of many rows, see `GRAPH_ROWS`, IVF-Flat alone.

    Args:
        vectors: (n, d) float32.
        folder: for its indexes, which are taken as they are if they are there.
    """

    def __init__(self, vectors: NDArray[np.float32], folder: Path) -> None:
        import faiss

        made = {"lists.faiss": self._made_lists, "graph.faiss": self._made_graph}
        if len(vectors) > GRAPH_ROWS:
            del made["graph.faiss"]
        for name, make in made.items():
            if not (folder / name).exists():
                faiss.write_index(make(vectors), str(folder / name))
        self._lists, *self._graph = (faiss.read_index(str(folder / name)) for name in made)
        faiss.omp_set_num_threads(1)

    @staticmethod
    def _made_lists(vectors: NDArray[np.float32]) -> Any:
        import faiss

        dimension = vectors.shape[1]
        quantizer = faiss.IndexFlatL2(dimension)
        lists = faiss.IndexIVFFlat(quantizer, dimension, int(4 * np.sqrt(len(vectors))))
        if len(vectors) > GRAPH_ROWS:
            lists.cp.max_points_per_centroid = 64
        lists.train(vectors)
        lists.add(vectors)
        return lists

    @staticmethod
    def _made_graph(vectors: NDArray[np.float32]) -> Any:
        import faiss

        graph = faiss.IndexHNSWFlat(vectors.shape[1], 16)
        graph.hnsw.efConstruction = 200
        graph.add(vectors)
        return graph

    def answer(self, asked: Asked, target: float, rounds: int) -> Answered:
        """Search both indexes at the least effort that reaches a recall; return the faster."""
        import faiss

        bitmap = np.packbits(asked.allowed, bitorder="little")
        selector = faiss.IDSelectorBitmap(bitmap)

        def searching(index: Any, given: Callable[[int], Any]) -> Callable[..., Distances]:
            def search(queries: NDArray[np.float32], effort: int) -> Distances:
                found, _ = index.search(queries, NEIGHBOURS, params=given(effort))
                distances: Distances = np.sqrt(found)
                return distances

            return search

        asks: list[tuple[str, Callable[..., Distances]]] = [
            (
                "IVF nprobe",
                searching(
                    self._lists,
                    lambda effort: faiss.SearchParametersIVF(sel=selector, nprobe=effort),
                ),
            )
        ]
        asks += [
            (
                "HNSW efSearch",
                searching(
                    graph,
                    lambda effort: faiss.SearchParametersHNSW(sel=selector, efSearch=effort),
                ),
            )
            for graph in self._graph
        ]
        found = [least_effort(asked, search, target, rounds, what) for what, search in asks]
        return min(found, key=lambda one: (one.recall < target, one.seconds))
