"""Bytes of the links of a Vamana graph: by rule, or as a graph over some of the rows has them.

How many links a row has depends on how rows lie: among rows in tight clusters a third as many lead
on as among rows that lie alike in all directions. A graph over some ten thousand rows tells it, and
how it grows or shrinks: with each doubling of the rows by about as many links.
"""

import io
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LINK, LINK_LESS = 0.08, 7.0
"""Bytes of a link among n rows of a graph of mean degree m: 0.08 + log2(n / m) / 7. Fitted to what
the format's encoder makes of links drawn near by and from everywhere, as those of word and sentence
vectors are, 20,000 to 4,000,000 rows: off by 3 %, and 7 % too few with two cells in a shard."""
DEGREE, DEGREE_ROWS, DEGREE_GROWTH, DEGREE_BEND = 38.0, 20_000, 5.0, 4
"""Mean degree of a Vamana graph without a maximum, of so many rows, what each doubling adds, and
how sharply the maximum cuts in: measured on words, sentences and normal vectors of 32 numbers."""
LAYER_DEGREE, UPPER_DEGREE = 3.5, 2.3
"""Mean links in layer 0 of HNSW, and above, as multiples of the root of M."""
FEWEST = 12.0
"""Mean degree that rows in tight clusters, or of few true dimensions, do not go below; measured
were 15 to 18."""

MEASURED_ROWS, MEASURED_BYTES = 128_000, 256 << 20
"""Rows of the larger of the two graphs that are measured, and bytes of their vectors, at most; the
other has half of them. Where rows are like others with some noise, links become fewer from the
number on at which those others are near: a million mixed of 99,000 words have 35 a row, of 32,000
of them 50, of 128,000 49. Below some 5,000 rows graphs are built in another way, with more."""
FEWEST_ROWS = 1000
"""Of fewer rows nothing is measured."""
CELLS = 32


@dataclass(frozen=True)
class MeasuredLinks:
    """Links of a graph over some rows of a table.

    Attributes:
        rows: of the graph.
        degree: mean links of a row.
        growth: what each doubling of the rows adds to that, or takes away.
        link: bytes of a link, as the format writes it.
    """

    rows: int
    degree: float
    growth: float
    link: float

    def of_row(self, rows: int, in_shard: int, most: int) -> float:
        """Return the bytes of a row's links.

        Args:
            rows: of the table: as dense as those lie, whatever the shards.
            in_shard: rows of a shard, among which a link tells one.
            most: links of a row.
        """
        degree = self.degree + self.growth * math.log2(max(rows, 1) / self.rows)
        degree = max(degree, min(FEWEST, self.degree), 1.0)
        degree = min(degree, most, max(in_shard - 1, 1))
        known = math.log2(self.rows / self.degree)
        return degree * max(self.link + (math.log2(in_shard / degree) - known) / LINK_LESS, LINK)


def bytes_of_row(
    rows: int, in_shard: int, most: int, measured: MeasuredLinks | None = None
) -> tuple[float, float, float]:
    """Return the bytes of a row's links in a `vamana` graph: least, as is likely, and most.

    Args:
        rows: of the table.
        in_shard: rows of a shard.
        most: links of a row.
        measured: in a graph over some of the rows; None: as of words and sentences.
    """
    if measured is not None and in_shard > 1:
        return (measured.of_row(rows, in_shard, most),) * 3
    likely = by_rule(in_shard, usual_degree(in_shard, most))
    least = min(by_rule(in_shard, min(FEWEST, most)), likely)
    return least, likely, max(by_rule(in_shard, most), likely)


def hnsw_bytes_of_row(rows: int, m: int) -> float:
    """Return the bytes of a row's links in the layers of HNSW, of M links."""
    above = by_rule(rows, UPPER_DEGREE * math.sqrt(m)) / max(m - 1, 1)
    return by_rule(rows, min(LAYER_DEGREE * math.sqrt(m), 2 * m)) + above


def by_rule(rows: int, mean: float) -> float:
    """Return the bytes of the links of a row among so many, of which it has a mean number."""
    mean = min(mean, max(rows - 1, 0))
    return mean * (LINK + math.log2(rows / mean) / LINK_LESS) if mean >= 1 else 1.0


def usual_degree(rows: int, most: int) -> float:
    """Return the mean degree among so many words or sentences, where a row has links at most."""
    natural = max(DEGREE + DEGREE_GROWTH * math.log2(max(rows, 2) / DEGREE_ROWS), 4.0)
    return float((natural**-DEGREE_BEND + most**-DEGREE_BEND) ** (-1 / DEGREE_BEND))


def rows_to_measure(dimension: int) -> int:
    """Return how many rows are measured of a table that has more."""
    return min(MEASURED_ROWS, MEASURED_BYTES // (4 * dimension))


def measured(
    vectors: NDArray[np.float32], metric: str, degree: int | None, *, threads: int
) -> MeasuredLinks:
    """Build graphs over vectors and over half of them, and return what links they have.

    Args:
        vectors: (n, d) float32, drawn of all of a table alike; at least 4.
        metric: of the index.
        degree: R as declared; None as by default.
        threads: threads to use.
    """
    half = _built(vectors[: len(vectors) // 2], metric, degree, threads)
    whole = _built(vectors, metric, degree, threads)
    growth = (whole[0] - half[0]) / math.log2(len(vectors) / (len(vectors) // 2))
    return MeasuredLinks(len(vectors), whole[0], growth, whole[1])


def _built(
    vectors: NDArray[np.float32], metric: str, degree: int | None, threads: int
) -> tuple[float, float]:
    """Return the mean degree of a graph over vectors, and the bytes of a link."""
    # Whoever predicts without a table needs no kernels.
    from puffin_ann.ann.clustering import kmeans
    from puffin_ann.ann.core.metrics import METRICS
    from puffin_ann.engines.vamana import VamanaEngine

    longest = float(np.linalg.norm(vectors, axis=1).max())
    space = np.ascontiguousarray(METRICS[metric].to_search_space(vectors, longest))
    # Rows of a shard are in the order of its cells, so that links lead near by.
    cells = kmeans.train(space[:8192], min(CELLS, len(space)), seed=1, threads=threads)
    ordered = vectors[np.argsort(kmeans.assign(space, cells, threads)[0], kind="stable")]
    engine = VamanaEngine()
    parameters = engine.check({} if degree is None else {"R": degree}, vectors.shape[1])
    with tempfile.TemporaryDirectory(prefix="puffin-ann-size-") as scratch:
        graph = engine.build(
            np.ascontiguousarray(ordered),
            metric=metric,
            parameters=parameters,
            norm_bound=0.0,
            seed=1,
            threads=threads,
            scratch=Path(scratch),
        )
        total = engine.encode(graph, io.BytesIO())
        mean = max(float(np.asarray(graph.degrees, np.int64).mean()), 1.0)
    beside = [vectors, graph.codes, graph.codebook]
    links = total - sum(part.nbytes for part in beside if part is not None)
    return mean, links / (len(vectors) * mean)
