"""`vamana` by inner product against hnswlib in two spaces.

Rows are GloVe's as they are, of their own lengths. hnswlib is built in its space of inner products,
and in that of Euclidean distances over rows with one number more, which makes all equally long: as
ours are built. Of each M, and of both spaces in the first lines, the fastest counts at each recall.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import engines
from benchmarks.data import NEIGHBOURS, DataSet, load
from benchmarks.graphs import AGAINST_HNSWLIB, CONNECTIONS, against
from benchmarks.race import Contender, race
from benchmarks.results import Result, plot
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.ann.exact import brute_force

METRIC = METRICS["ip"]
AUGMENTED = "l2 of augmented rows"


def measure(name: str, rounds: int) -> Result:
    """Build and search one data set, in batches."""
    data = by_product(load(name))
    result = Result(family=f"products-{name}")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        built = engines.build_ours("vamana", data.vectors, folder, metric="ip")[1]
        shard, _ = engines.through_blob("vamana", built, folder)
        engines.check_answers(shard, data)
        peers = list(_peers(data.vectors))
        own = engines.ours("vamana", shard)
        curves = race([own, *peers], data, rounds=rounds)
    title = f"{data.title}, by inner product"
    result.rows += against(
        f"products-{name}", title, "batch", curves, peers, AGAINST_HNSWLIB, "vamana"
    )
    alike = [peer for peer in peers if AUGMENTED in peer.name]
    rows = against(
        f"products-augmented-{name}", title, "batch", curves, alike, AGAINST_HNSWLIB, "vamana"
    )
    for recall, row in zip(AGAINST_HNSWLIB, rows, strict=True):
        if row.measured is None:
            reached = f"hnswlib over the augmented rows does not reach recall@10 {recall:.2f}"
            result.facts.append(f"{title}: {reached}")
        else:
            result.rows.append(row)
    lengths = np.linalg.norm(data.vectors, axis=1)
    result.facts.append(
        f"{title}: rows are as long as GloVe has them, {lengths.min():.1f} to {lengths.max():.1f}, "
        f"{np.median(lengths):.1f} at the median; those answered {answered(data, lengths):.1f}"
    )
    result.plots.append(plot(f"products-{name}-batch", f"{title}, batch of 1,000", curves))
    return result


def by_product(data: DataSet) -> DataSet:
    """Return a set with the rows of the largest inner products as what is true."""
    truth, _ = brute_force.search(data.queries, data.vectors, NEIGHBOURS, "ip", threads=2)
    return replace(data, truth=truth)


def answered(data: DataSet, lengths: NDArray[np.floating]) -> float:
    """Return the median length of the rows that are true answers."""
    return float(np.median(lengths[data.truth]))


def _peers(vectors: NDArray[np.float32]) -> Iterator[Contender]:
    """Build hnswlib in both spaces, with each M."""
    longest = float(np.linalg.norm(vectors.astype(np.float64), axis=1).max())
    equally_long = METRIC.to_search_space(vectors, longest)
    for connections in CONNECTIONS:
        index = engines.build_hnswlib(vectors, connections, "ip")[1]
        yield engines.hnswlib_contender(index, f"hnswlib M {connections}, its inner product")
        index = engines.build_hnswlib(equally_long, connections)[1]
        yield augmented(engines.hnswlib_contender(index, f"hnswlib M {connections}, {AUGMENTED}"))


def augmented(peer: Contender) -> Contender:
    """Return a peer over augmented rows, asked for queries as they are."""

    def search(queries: NDArray[np.float32], effort: int) -> NDArray[np.integer]:
        return peer.search(METRIC.queries_to_search_space(queries), effort)

    return replace(peer, search=search)
