"""Searches by tags: each row has a bag of them, and a query wants the nearest rows that have two.

That is the shape of the filter track of NeurIPS'23's big-ann-benchmarks (YFCC-10M, whose rows have
some of 200,386 tags), on a million rows mixed of real ones with tags drawn by Zipf's law. PyIceberg
has no condition on lists: a row's tags are in eight columns, each of which may have the one wanted.
LanceDB has a list of them, with an index of its labels.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import lakehouse, lance_tables
from benchmarks.condition_peers import LISTS_REFINED, RECALL, WIDEST
from benchmarks.data import NEIGHBOURS, DataSet, load
from benchmarks.results import Result, Row
from benchmarks.settle import settle

TAGS = 200_000
TAGS_A_ROW, WANTED = 8, 2
QUERIES, LANCE_QUERIES = 200, 50
LEADERS = (
    "the filter track's leaders, queries per second at a recall of 0.9 on YFCC-10M (192 numbers of "
    "a byte each), all 8 virtual cores of an Azure D8lds v5, as its organisers measured them in "
    "2024: parlayivf 37,902, puck 19,193, wm_filter 14,468; faiss, its baseline, 3,033"
)
COLUMNS = (
    f"a row's tags are in {TAGS_A_ROW} scalar columns of our table, each of which may have the one "
    "wanted, since PyIceberg's conditions have no predicate on lists, and in a list in LanceDB's, "
    "with an index of its labels (LABEL_LIST)"
)

Distances = NDArray[np.float32]
Search = Callable[[int], Distances]
"""Returns the distances that a query, given by its number, is answered with."""


def measure(name: str, rounds: int) -> Result:
    """Search one query a call, each of which wants other tags; once, whatever `rounds`."""
    del rounds
    result = Result(family="tags")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        data = load(name, folder)
        tags = _drawn(len(data.vectors))
        wanted = _wanted(tags)
        true = [_nearest(data, tags, number, pair) for number, pair in enumerate(wanted)]
        lakehouse.configure(folder)
        ours, lookups = _ours(data, tags, wanted)
        lance = _lance(data, tags, wanted, folder)
        settle()
        first, recall = _asked(ours, true, QUERIES)
        again, _ = _asked(ours, true, QUERIES)
        theirs, their_recall, setting = _least_effort(lance, true)
    matches = median(len(distances) for distances in true)
    result.rows = [
        Row(
            key="tags-recall",
            what=f"two tags wanted, {data.title}: recall@10",
            ours=f"{recall:.4f}",
            theirs="–",
            measured=recall,
            least=RECALL,
            aim=RECALL,
            unit="",
            note=f"{QUERIES} queries, {matches:.0f} answers at the median, 10 at most",
        ),
        Row(
            key="tags-lance",
            what="the same: one query a call, tags that nobody asked for before ÷ LanceDB "
            "(prefilter, LABEL_LIST)",
            ours=f"{1 / first:,.0f}/s",
            theirs=f"{1 / theirs:,.0f}/s",
            measured=theirs / first,
            least=10,
            aim=30,
            note=f"recall@10 {recall:.3f} and {their_recall:.3f} ({setting}); asked again, "
            f"{1 / again:,.0f} a second; {lookups}",
        ),
    ]
    result.facts = [COLUMNS, LEADERS]
    return result


def _drawn(rows: int) -> NDArray[np.int64]:
    """Return (rows, TAGS_A_ROW) int64: the n-th of all tags is 1 / n as frequent as the first."""
    share = 1.0 / np.arange(1, TAGS + 1)
    bounds = np.cumsum(share / share.sum())
    drawn = np.random.default_rng(11).random((rows, TAGS_A_ROW))
    return np.searchsorted(bounds, drawn).astype(np.int64).clip(max=TAGS - 1)


def _wanted(tags: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return two tags of a row each, drawn at random: one row at least has both."""
    draw = np.random.default_rng(12)
    found: list[tuple[int, int]] = []
    while len(found) < QUERIES:
        first, second = draw.choice(tags[draw.integers(len(tags))], WANTED, replace=False).tolist()
        if first != second:
            found.append((first, second))
    return found


def _nearest(
    data: DataSet, tags: NDArray[np.int64], number: int, pair: tuple[int, int]
) -> Distances:
    """Return the distances of the nearest rows that have both tags, ten at most, ascending."""
    has_both = (tags == pair[0]).any(axis=1) & (tags == pair[1]).any(axis=1)
    apart = data.vectors[has_both] - data.queries[number]
    distances: Distances = np.sort(np.sqrt((apart**2).sum(axis=1)))[:NEIGHBOURS]
    return distances


def _ours(
    data: DataSet, tags: NDArray[np.int64], wanted: list[tuple[int, int]]
) -> tuple[Search, str]:
    """Return a search, and words for what the lookups it asks took to make."""
    from puffin_ann.lifecycle.runtime.runners import InProcess
    from puffin_ann.search.open_index import open_index
    from puffin_ann.settings import settings

    columns = {f"tag_{place}": tags[:, place] for place in range(TAGS_A_ROW)}
    lakehouse.create_table(data.vectors, numbers=columns)
    lakehouse.build(lakehouse.declared(include=list(columns)), "tags", InProcess())
    os.environ["PUFFIN_ANN_THREADS"] = "1"
    settings.cache_clear()
    index = open_index(lakehouse.TABLE, "bench")
    index.warm(lookups=False)
    began = time.perf_counter()
    index.warm()
    seconds, size = time.perf_counter() - began, index.cache_statistics.lookup_bytes
    # Any search loads code and maps what it reads; LanceDB is asked at lower efforts before.
    for query in data.queries[:LANCE_QUERIES]:
        index.search(query, NEIGHBOURS)
    lookups = f"lookups made beforehand in {seconds:.1f} s, {size / 1e6:.0f} MB of memory"
    wheres = [
        " and ".join(
            "(" + " or ".join(f"{column} = {tag}" for column in columns) + ")" for tag in pair
        )
        for pair in wanted
    ]

    def search(number: int) -> Distances:
        found = index.search(
            data.queries[number], NEIGHBOURS, where=wheres[number], allow_fewer=True
        )
        distances: Distances = found.column("distance").to_numpy()
        return distances

    return search, lookups


def _lance(
    data: DataSet, tags: NDArray[np.int64], wanted: list[tuple[int, int]], folder: Path
) -> Callable[[int], Search]:
    """Return what gives a search of an effort."""
    rows, dimension = data.vectors.shape
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * TAGS_A_ROW)
    lists = pa.ListArray.from_arrays(offsets, pa.array(tags.ravel()))
    table = lance_tables.create_table(lance_tables.connect(folder), data.vectors, {"tags": lists})
    lance_tables.index_by_lists(table, dimension, int(np.sqrt(rows)))
    table.create_scalar_index("tags", index_type="LABEL_LIST")

    def of_effort(effort: int) -> Search:
        def search(number: int) -> Distances:
            pair = ", ".join(map(str, wanted[number]))
            asked = table.search(data.queries[number]).distance_type("l2").limit(NEIGHBOURS)
            asked = asked.nprobes(effort).refine_factor(LISTS_REFINED)
            asked = asked.where(f"array_has_all(tags, [{pair}])", prefilter=True)
            found: Any = asked.select(["id", "_distance"]).to_arrow()
            distances: Distances = np.sqrt(found.column("_distance").to_numpy())
            return distances

        return search

    return of_effort


def _asked(search: Search, true: list[Distances], queries: int) -> tuple[float, float]:
    """Return seconds a query, and recall: equal distances count as found."""
    began = time.perf_counter()
    found = [search(number) for number in range(queries)]
    seconds = (time.perf_counter() - began) / queries
    hits = [
        int((mine <= there[-1] * np.float32(1 + 1e-5)).sum())
        for mine, there in zip(found, true, strict=False)
    ]
    return seconds, sum(hits) / sum(map(len, true[:queries]))


def _least_effort(
    lance: Callable[[int], Search], true: list[Distances]
) -> tuple[float, float, str]:
    """Raise the effort until the recall is reached; return seconds a query, recall and setting."""
    effort = NEIGHBOURS
    while True:
        seconds, recall = _asked(lance(effort), true, LANCE_QUERIES)
        if recall >= RECALL or effort >= WIDEST:
            return seconds, recall, f"IVF_PQ nprobes {effort}"
        effort = min(WIDEST, round(effort * 1.5))
