"""Rows in inverted lists: how they are trained, made of rows, and added to.

Lists and codes live in a space of their own, in which all numbers are of moderate size: `l2` rows
are taken relative to their mean, `cosine` rows have length 1, and `ip` rows are divided by the norm
bound and augmented to length 1 (codes leave the augmenting dimension out: a query has 0 there).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering import kmeans, product_quantisation
from puffin_ann.ann.core.metrics import METRICS

BITS = 4
LEAST_ROWS = 256
"""Fewer rows are not worth lists: comparing all of them takes microseconds."""
ROWS_PER_CENTROID = 96
"""Rows in the sample that lists are trained on, for each list."""
SAMPLE_BYTES = 256 << 20
CODED_ROWS = 16_384
"""Rows looked at together, whatever the number of threads."""
ITERATIONS = 12
MODERATE = 1e15
"""Rows this far from their mean, or this close all, would leave float32 when squared."""
WIDE, PARTS, DIVISIONS = 8.0, 4, 3
"""Lists with so many times the mean sum of squares are cut into so many, so many times over."""
NARROW = 0.05
"""Share of the rows' squares that residuals have where lists are far apart."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Trained:
    """What is learnt from a sample, and stays as rows come and go.

    Attributes:
        metric: name.
        relative: scores are made of a query relative to each centroid, at the cost of tables for
            each list: what clusters need that are far apart beside their own width, since a table
            of the whole query would not tell the rows of one from each other in 256 steps.
        scale: what `ip` rows are multiplied by; 1 for other metrics.
        origin: `(d,) float32`, what `l2` rows are taken relative to; zeros for other metrics.
        centroids: `(lists, d) float32`, for `ip` `(lists, d + 1)`.
        offsets: `(m + 1,) uint32`, where each sub-space begins.
        codebook: `(m, 16, w) float32`.
    """

    metric: str
    relative: bool
    scale: float
    origin: Floats
    centroids: Floats
    offsets: NDArray[np.uint32]
    codebook: Floats

    @property
    def dimension(self) -> int:
        """Numbers d in a row."""
        return len(self.origin)

    def to_space(self, rows: Floats) -> Floats:
        """Return `(n, d)` rows as the centroids are."""
        if self.metric == "l2":
            return np.asarray(rows, np.float32) - self.origin
        if self.metric == "ip":
            rows = np.asarray(rows, np.float32) * np.float32(self.scale)
        return METRICS[self.metric].to_search_space(rows, 1.0)

    def of_space(self, rows: Floats) -> Floats:
        """Return `(n, d)` rows as the table has them, of length 1 for `cosine`."""
        if self.metric == "l2":
            return rows + self.origin
        return rows / np.float32(self.scale)


@dataclass(frozen=True, eq=False)
class Lists:
    """Which rows each list has, and their codes; list after list.

    Attributes:
        starts: `(lists + 1,) int64`, from 0 to n.
        ordinals: `(n,) uint32`, ascending within a list.
        codes: `(n, ⌈m / 2⌉) uint8`: codes 2i and 2i + 1 in the low and high half of byte i.
        biases: `(n,) float32`, what a row's score has beside its list's and its codes'.
    """

    starts: NDArray[np.int64]
    ordinals: NDArray[np.uint32]
    codes: NDArray[np.uint8]
    biases: Floats


def default_lists(rows: int) -> int:
    """Return how many lists so many rows are put into.

    Fewer than is usual: scanning a row takes a nanosecond or two, so that to measure the query's
    distance from many centroids soon costs more than it saves.
    """
    return max(1, min(round(1.1 * math.sqrt(rows)), rows // 32))


def default_subspaces(dimension: int) -> int:
    """Return how many codes a row of so many dimensions gets.

    To scan them is most of a search. Of wide rows more candidates are cheap to measure, see
    `coded_rows`, so that coarser codes are faster at the same recall: measured on pairs of
    sentences, 768 dimensions; at 384 a third and a half are equal.
    """
    if dimension <= 128:
        return dimension
    return -(-dimension // (2 if dimension <= 512 else 3))


def train(
    vectors: Floats, metric: str, *, lists: int, subspaces: int, seed: int, threads: int
) -> Trained | None:
    """Train lists and codes on a sample; None for rows that lists cannot help.

    Those are few, or numbers beyond what float32 squares hold: to compare them all is right.

    Args:
        vectors: `(n, d) float32`; may be memory-mapped, only the sample is read, and norms for ip.
        metric: name.
        lists: wanted; at most one for each row of the sample.
        subspaces: m.
        seed: the same gives the same, whatever the number of threads.
        threads: threads to use.
    """
    rows, dimension = vectors.shape
    if rows < LEAST_ROWS:
        return None
    generator = np.random.default_rng([seed, 7])
    affordable = max(lists, SAMPLE_BYTES // (4 * dimension))
    wanted = min(rows, ROWS_PER_CENTROID * max(lists, 64), affordable)
    sample = np.asarray(vectors[np.sort(generator.choice(rows, wanted, replace=False))])
    scale, origin = 1.0, np.zeros(dimension, np.float32)
    if metric == "l2":
        origin = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
    extent = _largest_norm(vectors, origin)
    if not 1 / MODERATE < extent < MODERATE:
        return None
    if metric == "ip":
        scale = 1 / extent
    blank = np.zeros((0, 0), np.float32)
    offsets = product_quantisation.subspace_offsets(dimension, subspaces)
    space = Trained(metric, False, scale, origin, blank, offsets, blank[None])
    sample = space.to_space(sample)
    centroids = kmeans.train(
        sample, min(lists, wanted), seed=seed, iterations=ITERATIONS, threads=threads
    )
    centroids = _with_wide_ones_divided(sample, centroids, seed, threads)
    ids, _ = kmeans.assign(sample, centroids, threads)
    residuals = (sample - centroids[ids])[:, :dimension]
    codebook = product_quantisation.train(residuals, offsets, BITS, seed=seed, threads=threads)
    spread = float(np.square(residuals, dtype=np.float64).sum())
    relative = spread < NARROW * float(np.square(sample[:, :dimension], dtype=np.float64).sum())
    return Trained(metric, relative, scale, origin, centroids, offsets, codebook)


def _with_wide_ones_divided(sample: Floats, centroids: Floats, seed: int, threads: int) -> Floats:
    """Divide lists that hold far more than their share of the squared distances.

    Where rows come in clusters that are far apart, k-means from random rows leaves some clusters
    without a centroid, and one in the middle between others: all codes would then be spent on that
    list. At most half as many lists are added.
    """
    most = len(centroids) + len(centroids) // 2
    for _ in range(DIVISIONS):
        ids, squared = kmeans.assign(sample, centroids, threads)
        sums = np.bincount(ids, weights=squared, minlength=len(centroids))
        members = np.bincount(ids, minlength=len(centroids))
        wide = np.flatnonzero((sums > WIDE * sums.mean()) & (members >= 2 * PARTS))
        wide = wide[: (most - len(centroids)) // (PARTS - 1)]
        if not len(wide):
            break
        parts = [
            kmeans.train(sample[ids == name], PARTS, seed=seed, threads=threads) for name in wide
        ]
        centroids = np.concatenate([np.delete(centroids, wide, axis=0), *parts])
    return centroids


def fill(trained: Trained, vectors: Floats, threads: int) -> Lists:
    """Put rows into lists.

    Args:
        trained: by which.
        vectors: `(n, d) float32`; may be memory-mapped, read twice in blocks.
        threads: threads to use.
    """
    rows = len(vectors)
    ids = np.empty(rows, np.uint32)
    for at, block in _blocks(vectors):
        ids[at : at + len(block)], _ = kmeans.assign(
            trained.to_space(block), trained.centroids, threads
        )
    starts, ordinals = _sorted(ids, len(trained.centroids))
    places = np.empty(rows, np.int64)
    places[ordinals] = np.arange(rows)
    codes = np.empty((rows, -(-len(trained.codebook) // 2)), np.uint8)
    biases = np.empty(rows, np.float32)
    for at, block in _blocks(vectors):
        where = places[at : at + len(block)]
        coded = _coded(trained, block, ids[at : at + len(block)], threads)
        codes[where], biases[where] = coded
    return Lists(starts, ordinals, codes, biases)


def extend(trained: Trained, lists: Lists, added: Floats, threads: int) -> Lists:
    """Return lists with `(m, d)` rows more, whose ordinals follow those that are there."""
    more = fill(trained, added, threads)
    before = len(lists.ordinals)
    ids = np.concatenate([ids_of(lists.starts), ids_of(more.starts)])
    order = np.argsort(ids, kind="stable")
    starts = lists.starts + more.starts
    ordinals = np.concatenate([lists.ordinals, more.ordinals + np.uint32(before)])[order]
    codes = np.concatenate([lists.codes, more.codes])[order]
    biases = np.concatenate([lists.biases, more.biases])[order]
    return Lists(starts, ordinals, codes, biases)


def decoded(trained: Trained, lists: Lists) -> Floats:
    """Return what the codes say of rows, `(n, d) float32` by ordinal: about where they are."""
    out = np.empty((len(lists.ordinals), trained.dimension), np.float32)
    names = ids_of(lists.starts)
    for start in range(0, len(out), CODED_ROWS):
        part = slice(start, start + CODED_ROWS)
        near = trained.centroids[names[part]][:, : trained.dimension]
        codes = one_in_a_byte(lists.codes[part], len(trained.codebook))
        out[lists.ordinals[part]] = trained.of_space(near + _decoded(trained, codes))
    return out


def ids_of(starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the list that each place is in, `(n,) int64`."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def two_in_a_byte(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return `(n, m)` codes below 16 as `(n, ⌈m / 2⌉)` bytes."""
    rows, count = codes.shape
    out = np.zeros((rows, -(-count // 2)), np.uint8)
    out |= codes[:, 0::2]
    out[:, : count // 2] |= codes[:, 1::2] << 4
    return out


def one_in_a_byte(codes: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
    """Return `(n, ⌈m / 2⌉)` bytes as `(n, m)` codes."""
    out = np.empty((len(codes), 2 * codes.shape[1]), np.uint8)
    out[:, 0::2] = codes & 15
    out[:, 1::2] = codes >> 4
    return out[:, :count]


def _sorted(ids: NDArray[np.uint32], lists: int) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    starts = np.zeros(lists + 1, np.int64)
    np.cumsum(np.bincount(ids, minlength=lists), out=starts[1:])
    return starts, np.argsort(ids, kind="stable").astype(np.uint32)


def _coded(
    trained: Trained, block: Floats, ids: NDArray[np.uint32], threads: int
) -> tuple[NDArray[np.uint8], Floats]:
    """Return `(b, ⌈m / 2⌉)` codes and `(b,)` biases of rows, given their lists."""
    dimension = trained.dimension
    centroids = trained.centroids[ids]
    residuals = (trained.to_space(block) - centroids)[:, :dimension]
    codes = product_quantisation.encode(residuals, trained.codebook, trained.offsets, threads)
    squares = np.einsum("ij,ij->i", centroids, centroids, dtype=np.float64)
    if trained.relative:
        decoded = _decoded(trained, codes)
        biases = np.einsum("ij,ij->i", decoded, decoded, dtype=np.float64)
    elif trained.metric == "l2":
        # A score is that of the list, ‖c‖² − 2⟨q, c⟩, plus −2⟨q, p⟩ from the codes: what is missing
        # of ‖c + p − q‖² is the square of c + p in the place of that of c.
        near = centroids + _decoded(trained, codes)
        biases = np.einsum("ij,ij->i", near, near, dtype=np.float64) - squares
    else:
        biases = -squares  # the product alone orders
    largest = float(np.finfo(np.float32).max) / 4
    biases = np.clip(biases, -largest, largest)
    return two_in_a_byte(codes), biases.astype(np.float32)


def _decoded(trained: Trained, codes: NDArray[np.uint8]) -> Floats:
    out = np.empty((len(codes), trained.dimension), np.float32)
    for j, words in enumerate(trained.codebook):
        first, last = int(trained.offsets[j]), int(trained.offsets[j + 1])
        out[:, first:last] = words[codes[:, j], : last - first]
    return out


def _largest_norm(vectors: Floats, origin: Floats) -> float:
    largest = 0.0
    for _, block in _blocks(vectors):
        moved = block - origin.astype(np.float64)
        largest = max(largest, float(np.einsum("ij,ij->i", moved, moved).max(initial=0.0)))
    return math.sqrt(largest)


def _blocks(vectors: Floats) -> Iterator[tuple[int, Floats]]:
    step = max(256, min(CODED_ROWS, (32 << 20) // (4 * vectors.shape[1])))
    for at in range(0, len(vectors), step):
        yield at, np.asarray(vectors[at : at + step])
