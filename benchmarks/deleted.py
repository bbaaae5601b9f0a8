"""What deleted rows cost searches: speed at equal recall, by how many they are, and where."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import engines, lakehouse
from benchmarks.data import NEIGHBOURS, QUERIES, DataSet, load, recall
from benchmarks.race import Point, rate_at, rate_text
from benchmarks.results import Result, Row
from puffin_ann.ann.exact import brute_force
from puffin_ann.engines import SearchableShard, engine

RECALL = 0.95
GROWTH, WIDEST = 1.25, 4000
PART = 125
"""Queries that are timed together, in one call or one a call: interleaved so finely, all contenders
have the same share of what else the machine does."""
COMPARED = 125
"""Queries of an engine that compares all rows; it finds all, so that no more are needed."""
ENGINES = ("vamana", "hnsw", "ivf_pq", "exact")
SHARES = {"1 row": 0.9, "1 %": 0.9, "5 %": 0.9, "19 %": 0.8}
"""Deleted, and the least share of the speed that is to be left; more than a fifth has a shard built
again."""
PLACES = ("anywhere", "in one cluster")
BUILT_ANEW = [("5 %", PLACES[1]), ("19 %", PLACES[1])]
"""What is compared with a shard built of the live rows alone, which is what can be had at most."""
ADDED, DELETED = 0.01, 0.02
SEED = 5

ANEW = "a shard built of the live rows instead, in one cluster"
NOTED_SECONDS = 0.005

Ids = NDArray[np.integer]
Search = Callable[[NDArray[np.float32], int], Ids]
"""(queries, width) -> ids `(q, 10)`."""


@dataclass(frozen=True, eq=False)
class Mask:
    """Deleted rows.

    Attributes:
        share: key of `SHARES`.
        place: one of `PLACES`.
        deleted: `(n,) uint8`, non-zero for deleted rows.
        truth: `(q, 10) int64`, the nearest of the others to each query.
        anew: whether a shard built of those is compared.
    """

    share: str
    place: str
    deleted: NDArray[np.uint8]
    truth: NDArray[np.int64]
    anew: bool

    @classmethod
    def of(cls, data: DataSet, share: str, place: str, *, anew: bool) -> "Mask":
        """Mark rows of a data set, and find the nearest of the others."""
        deleted = mark_deleted(data.vectors, share, place)
        truth = brute_force.search(
            data.queries, data.vectors, NEIGHBOURS, "l2", allowed=deleted == 0, threads=2
        )[0]
        return cls(share, place, deleted, truth, anew)


@dataclass
class _Timed:
    """A search at the two widths on either side of a recall, or at the least.

    Attributes:
        search: what is timed.
        points: of both widths; their rates come with `_time`.
        seconds: of each width, the least of each part of the queries so far.
    """

    search: Search
    points: list[Point]
    seconds: list[dict[int, float]] = field(init=False)

    def __post_init__(self) -> None:
        self.seconds = [{} for _ in self.points]

    def rate(self, queries: int) -> float | None:
        """Return queries per second at the recall."""
        for point, parts in zip(self.points, self.seconds, strict=True):
            point.rates = [queries / sum(parts.values())]
        return rate_at(self.points, RECALL)


def measure(name: str, rounds: int) -> Result:
    """Search shards of each engine, and an index that was refreshed."""
    rounds = 2 * rounds + 1
    data = load(name)
    result = Result(family=f"deleted-{name}")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        lakehouse.configure(folder)  # before anything imports PyIceberg
        masks = [
            Mask.of(data, share, place, anew=(share, place) in BUILT_ANEW)
            for share in SHARES
            for place in PLACES
        ]
        for algorithm in ENGINES:
            result.rows += _rows(algorithm, masks, data, folder, rounds)
        result.rows.append(_refreshed(data, folder, rounds))
    result.facts.append(
        f"{data.title}, deleted rows: seconds are those of the processor, since one thread "
        f"searches; the least of {rounds} rounds for every {PART} queries, all masks "
        "in turn; what a mask that stays is given after some queries was made before"
    )
    return result


def mark_deleted(vectors: NDArray[np.float32], share: str, place: str) -> NDArray[np.uint8]:
    """Mark rows as deleted: any of them, or the nearest to one."""
    generator = np.random.default_rng(SEED)
    count = 1 if share == "1 row" else round(len(vectors) * float(share.removesuffix(" %")) / 100)
    order = generator.permutation(len(vectors))
    if place != PLACES[0]:
        order = np.argsort(((vectors - vectors[order[0]]) ** 2).sum(axis=1), kind="stable")
    deleted = np.zeros(len(vectors), np.uint8)
    deleted[order[:count]] = 1
    return deleted


def _rows(algorithm: str, masks: list[Mask], data: DataSet, folder: Path, rounds: int) -> list[Row]:
    """Search a shard with each mask, once what a mask that stays is given was made."""
    _, built = engines.build_ours(algorithm, data.vectors, folder)
    shard, unpacked = engines.through_blob(algorithm, built, folder)
    found: dict[tuple[str, str, str], tuple[float | None, float | None]] = {}
    queries = data.queries[: COMPARED if algorithm == "exact" else QUERIES]
    searches: dict[tuple[str, str], Search] = {}
    made: dict[str, float] = {}
    _expect(engine(algorithm).open(unpacked), masks[-1].deleted)  # its kernels are loaded now
    for mask in masks:
        # What is made for one is in no other's way; where nothing is, as rows lie in memory decides
        # more than a mask does, so that they are the same ones.
        masked = shard if algorithm == "exact" else engine(algorithm).open(unpacked)
        seconds = _expect(masked, mask.deleted)
        made[mask.share] = max(made.get(mask.share, 0.0), seconds)
        searches[mask.share, mask.place] = _search_of(masked, mask.deleted)
        if mask.anew and algorithm != "exact":
            searches[mask.share, ANEW] = _anew(algorithm, mask, data, folder)
    truths = {(mask.share, place): mask.truth for mask in masks for place in (mask.place, ANEW)}
    for how in ("batch", "one query a call"):
        clean = _timed(_search_of(shard, None), queries, data.truth[: len(queries)])
        others = {
            key: _timed(search, queries, truths[key][: len(queries)])
            for key, search in searches.items()
        }
        _time([clean, *others.values()], queries, how == "batch", rounds)
        without = clean.rate(len(queries))
        for (share, place), one in others.items():
            found[share, place, how] = one.rate(len(queries)), without
    return [_row(algorithm, share, data, found, made[share]) for share in SHARES]


def _expect(shard: Any, deleted: NDArray[np.uint8]) -> float:
    """Make what searches with a mask are quicker by; return the seconds of the processor."""
    began = time.process_time()
    shard.expect(deleted)
    return time.process_time() - began


def _anew(algorithm: str, mask: Mask, data: DataSet, folder: Path) -> Search:
    """Return a search of a shard that was built of the live rows of a mask."""
    live = np.flatnonzero(mask.deleted == 0)
    scratch = Path(tempfile.mkdtemp(dir=folder))
    _, built = engines.build_ours(algorithm, np.ascontiguousarray(data.vectors[live]), scratch)
    found = _search_of(engines.through_blob(algorithm, built, scratch)[0], None)
    return lambda queries, width: live[found(queries, width)]


def _row(
    algorithm: str,
    share: str,
    data: DataSet,
    found: dict[tuple[str, str, str], tuple[float | None, float | None]],
    made: float,
) -> Row:
    """Return the line of the worst place and way of asking; the others are told beside it."""
    ratios = {
        (place, how): (0.0 if mine is None or clean is None else mine / clean, mine, clean)
        for (measured, place, how), (mine, clean) in found.items()
        if measured == share
    }
    masked = {key: ratio for key, ratio in ratios.items() if key[0] != ANEW}
    least, mine, clean = min(masked.values(), key=lambda values: values[0])
    note = ", ".join(f"{place}, {how} {ratio[0]:.2f}" for (place, how), ratio in ratios.items())
    if made >= NOTED_SECONDS:
        note += f"; what searches with the mask are quicker by was made in {made:.2f} s before"
    return Row(
        key=f"deleted-{data.name}-{algorithm}-{share.replace(' ', '')}",
        what=f"`{algorithm}` with {share} deleted ÷ with none, {data.title}, recall@10 "
        f"{'1' if algorithm == 'exact' else RECALL}, the least of anywhere and in one cluster, "
        "batch and one query a call",
        ours=rate_text(mine),
        theirs=rate_text(clean),
        measured=least or None,
        least=SHARES[share],
        aim=1.0,
        note=note,
    )


def _search_of(shard: SearchableShard, deleted: NDArray[np.uint8] | None) -> Search:
    def search(queries: NDArray[np.float32], width: int) -> Ids:
        return shard.search(queries, NEIGHBOURS, width=width, deleted=deleted)[0]

    return search


def _timed(search: Search, queries: NDArray[np.float32], truth: NDArray[np.int64]) -> _Timed:
    """Find the two widths on either side of the recall; one if the least is enough."""
    points = [Point(NEIGHBOURS, recall(search(queries, NEIGHBOURS), truth))]
    while points[-1].recall < RECALL and points[-1].effort < WIDEST:
        effort = round(points[-1].effort * GROWTH)
        points.append(Point(effort, recall(search(queries, effort), truth)))
    return _Timed(search, points[-2:])


def _time(
    contenders: Sequence[_Timed], queries: NDArray[np.float32], batch: bool, rounds: int
) -> None:
    """Search part by part, every contender in turn, and keep the least time of each part.

    Who comes first finds the least of what a part needs in the caches: another one each round.
    """
    for turn in range(rounds):
        first = turn % len(contenders)
        for at in range(0, len(queries), PART):
            part = queries[at : at + PART]
            calls = [part] if batch else [part[i : i + 1] for i in range(len(part))]
            for contender in [*contenders[first:], *contenders[:first]]:
                for point, parts in zip(contender.points, contender.seconds, strict=True):
                    began = time.process_time()
                    for call in calls:
                        contender.search(call, point.effort)
                    seconds = time.process_time() - began
                    parts[at] = min(seconds, parts.get(at, seconds))


def _refreshed(data: DataSet, folder: Path, rounds: int) -> Row:
    """Compare an index as it was built with itself after rows were added and others deleted."""
    from benchmarks.refresh import Life

    lived = Life(data, folder)
    lived.start()
    before = _timed_index(lived, data)
    lived.change(lived.append, ADDED)
    cost = lived.change(lived.delete_merge_on_read, DELETED)
    after = _timed_index(lived, data)
    _time([before, after], data.queries, True, rounds)
    mine, built = after.rate(len(data.queries)), before.rate(len(data.queries))
    return Row(
        key=f"deleted-{data.name}-refreshed",
        what=f"an index of 4 shards after 1 % was added, 2 % deleted and it was refreshed ÷ as "
        f"built, {data.title}, recall@10 {RECALL}, batch",
        ours=rate_text(mine),
        theirs=rate_text(built),
        measured=None if mine is None or built is None else mine / built,
        least=0.7,
        aim=0.9,
        note=f"{cost.counts['deltas']} delta, which every query is compared with row by row, "
        f"{cost.counts['deleted']:,} rows deleted",
    )


def _timed_index(lived: Any, data: DataSet) -> _Timed:
    """Open the index as it is now, and find its widths; ids are places among answers."""
    from puffin_ann.search.open_index import open_index

    index = open_index(lived.table, "bench")
    shape = (len(data.queries), NEIGHBOURS)
    exhaustive = index.search(data.queries, NEIGHBOURS, exhaustive=True)
    farthest = exhaustive.column("distance").to_numpy().reshape(shape)[:, -1]

    def search(queries: NDArray[np.float32], width: int) -> Ids:
        found = index.search(queries, NEIGHBOURS, width=width).column("distance").to_numpy()
        near = found.reshape(-1, NEIGHBOURS)
        if len(near) < len(farthest):
            return np.zeros(near.shape, np.int64)
        # As many of the true neighbours as are no farther than the last of them.
        places = np.tile(np.arange(NEIGHBOURS), (len(near), 1))
        return np.where(near <= farthest[:, None], places, -1)

    truth = np.tile(np.arange(NEIGHBOURS), (len(data.queries), 1))
    return _timed(search, data.queries, truth)
