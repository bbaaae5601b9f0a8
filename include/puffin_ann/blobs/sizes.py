"""Predict how large an index will be, before it is built.

Fixed parts follow the formulas of `docs/format.md`. Two parts depend on how numbers fall, locators
and adjacency: of those one block is made up (gaps between the rows of a shard, neighbours drawn
evenly) and encoded for real, so that the prediction is right about varints and zstd too.

The mean degree of a graph depends on the data. Given it (`mean_degree`, or `mean_degree_of` a shard
of such data and about as many rows), an index is predicted within 2 %, with vectors or without.
Left to the default, the adjacency may be a third off: the index is right within 2 % where vectors
outweigh that, from some 250 dimensions on, within 5 % at 100 dimensions, and not at all below 20.

Rows that are near each other often stand near each other in the table as well, which makes gaps
smaller than even ones: of GloVe words in order of frequency the adjacency takes 2 % less than
predicted.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from puffin_ann.blobs import (
    centroid,
    coverage,
    graph,
    metrics,
    partitions,
    routing,
    rows,
    tombstones,
)
from puffin_ann.blobs.container import ALIGNMENT, HEADER, SECTION, TRAILER, ContainerReader
from puffin_ann.errors import BadInputError

NATURAL_DEGREE = 38.0
NATURAL_ROWS = 20_000
NATURAL_GROWTH = 5.0
NATURAL_BEND = 4
"""Mean degree a graph would have without a maximum, in a shard of so many rows, what each doubling
of the rows adds, and how sharply the maximum cuts in. Measured on graphs that our builder (alpha
1.2) made of GloVe words, sentence vectors and normal vectors of 32 dimensions, 5,000 to 100,000
each; vectors of few dimensions have half of it."""

DEGREE_SPREAD = 0.5
"""Degrees of real graphs differ, by a third to a half: their varints do not compress away."""

_FOOTER_FILE = 120
_FOOTER_BLOB = 260
_SHARD_BLOBS = 3  # graph, rows, tombstones
_FILE_BLOBS = 3  # routing, partitions, coverage
_LANES = 16  # rows that a graph is searched by are padded to so many numbers


@dataclass(frozen=True)
class IndexShape:
    """What decides the size of an index.

    Attributes:
        rows: Indexed rows.
        dimension: Width of a vector.
        metric: `"l2"`, `"cosine"` or `"ip"`.
        max_degree: R of the graph; 0 for exhaustive search.
        mean_degree: Mean neighbours of a node; an estimate if None.
        pq_subspaces: m, 0 for no codes.
        pq_bits: Bits of a code.
        shards: Shards the rows are spread over.
        partitions_per_shard: k-means cells in a shard.
        vectors: Whether shards keep the vectors.
        identities: Whether rows keep their identity.
        files: Covered data files.
        row_groups: Row groups of a file.
        path_bytes: Mean length of a data file's path in the coverage blob.
        tombstone_ratio: Share of rows deleted, evenly.
        property_bytes: Free text in the routing blob.

    """

    rows: int
    dimension: int
    metric: str = "l2"
    max_degree: int = 64
    mean_degree: float | None = None
    pq_subspaces: int = 0
    pq_bits: int = 8
    shards: int = 1
    partitions_per_shard: int = 32
    vectors: bool = True
    identities: bool = True
    files: int = 1
    row_groups: int = 1
    path_bytes: int = 80
    tombstone_ratio: float = 0.0
    property_bytes: int = 2000

    def __post_init__(self) -> None:
        """Refuse shapes the formats cannot hold."""
        per_shard = math.ceil(self.rows / max(self.shards, 1))
        wrong = {
            f"rows must not be negative, got {self.rows}": self.rows < 0,
            f"shards must be at least 1, got {self.shards}": self.shards < 1,
            f"a shard of {per_shard} rows is over 2^32: use more shards": per_shard >= 1 << 32,
            f"dimension must be 1 to {graph.MAX_DIMENSION}, got {self.dimension}": not (
                0 < self.dimension <= graph.MAX_DIMENSION
            ),
            f"maximum degree must be 0 to {graph.MAX_DEGREE}, got {self.max_degree}": not (
                0 <= self.max_degree <= graph.MAX_DEGREE
            ),
            f"metric must be one of {list(metrics.CODES)}, got {self.metric!r}": (
                self.metric not in metrics.CODES
            ),
            f"bits of a code must be 1 to 8, got {self.pq_bits}": not 1 <= self.pq_bits <= 8,
        }
        for message, there in wrong.items():
            if there:
                raise BadInputError(message)


@dataclass(frozen=True)
class IndexSize:
    """Bytes of an index: of one shard's blobs, of the blobs of all, and in the search cache."""

    graph: int
    rows: int
    tombstones: int
    routing: int
    partitions: int
    coverage: int
    file: int
    unpacked: int


def fewest_shards(shape: IndexShape) -> int:
    """Return the fewest shards whose graph blobs Java can read, which takes up to 2 GiB.

    A tenth is left to spare, since shards differ. The shards of `shape` itself do not count.
    """
    sample = 1 << 20
    per_row = graph_size(shape, sample) / sample
    return max(math.ceil(shape.rows * per_row / (0.9 * (1 << 31))), 1)


def shape_of(graph_source: BinaryIO, rows_source: BinaryIO) -> dict[str, Any]:
    """Return fields of an `IndexShape` that a shard's graph and rows blobs tell.

    Read are heads and section tables alone, whatever the size of the blobs.

    Raises:
        FormatError: They are not such blobs.
    """
    reader = ContainerReader(graph_source, graph.KIND)
    head = reader.record("head", graph.HEAD)
    count, most = int(head["rows"]), int(head["max_degree"])
    told = {
        "dimension": int(head["dimension"]),
        "metric": metrics.name(int(head["metric"]), "graph blob"),
        "max_degree": most,
        "pq_subspaces": int(head["pq_subspaces"]),
        "pq_bits": int(head["pq_bits"]) or 8,
        "vectors": "vecs" in reader,
        "identities": "iden" in ContainerReader(rows_source, rows.KIND),
    }
    if most and count:
        told["mean_degree"] = mean_degree_of(reader.section_length("adja"), count, most)
    return told


def predict(shape: IndexShape) -> IndexSize:
    """Return the sizes of an index of a shape; shards are taken to be equal."""
    one = math.ceil(shape.rows / shape.shards)
    graph_bytes = graph_size(shape, one)
    rows_bytes = rows_size(shape, one)
    tombstone_bytes = tombstones_size(shape, one)
    small = {
        "routing": routing_size(shape),
        "partitions": partitions_size(shape),
        "coverage": coverage_size(shape),
    }
    blobs = _FILE_BLOBS + _SHARD_BLOBS * shape.shards
    per_shard = graph_bytes + rows_bytes + tombstone_bytes
    footer = _FOOTER_FILE + _FOOTER_BLOB * blobs
    return IndexSize(
        graph=graph_bytes,
        rows=rows_bytes,
        tombstones=tombstone_bytes,
        file=4 + shape.shards * per_shard + sum(small.values()) + footer,
        unpacked=shape.shards * _unpacked(shape, one),
        **small,
    )


def graph_size(shape: IndexShape, count: int) -> int:
    """Return the bytes of the graph blob of a shard of `count` rows."""
    sections = [graph.HEAD.itemsize, 30]
    if shape.pq_subspaces:
        sections += [
            4 * (shape.pq_subspaces + 1),
            _codebook(shape),
            count * shape.pq_subspaces,
        ]
    if shape.max_degree:
        sections += [
            _scaled(_adjacency_sample(shape, count), count),
            8 * (math.ceil(count / graph.BLOCK_NODES) + 1),
        ]
    if shape.vectors:
        sections.append(4 * count * shape.dimension)
    return _container(sections)


def mean_degree_of(adjacency: int, count: int, max_degree: int) -> float:
    """Return the mean degree of a real shard, from the bytes of its section `adja`.

    More exactly the one by which such a section is predicted, which is what is wanted here.
    """
    low, high = 0.0, float(max_degree)
    for _ in range(24):
        mean = (low + high) / 2
        shape = IndexShape(count, 1, max_degree=max_degree, mean_degree=mean)
        sample = _adjacency_sample(shape, count)
        if _scaled(sample, count) < adjacency:
            low = mean
        else:
            high = mean
    return high


def rows_size(shape: IndexShape, count: int) -> int:
    """Return the bytes of the rows blob of a shard of `count` rows, in order of their files."""
    sections = [
        rows.HEAD.itemsize,
        _scaled(_locator_sample(shape, count), count),
        8 * (math.ceil(count / rows.BLOCK_ROWS) + 1),
    ]
    if shape.identities:
        sections.append(16 * count)
    return _container(sections)


def tombstones_size(shape: IndexShape, count: int) -> int:
    """Return the bytes of the tombstones blob of a shard of `count` rows."""
    deleted = round(count * shape.tombstone_ratio)
    return _container([tombstones.HEAD.itemsize, _bitmap(deleted, count)])


def routing_size(shape: IndexShape) -> int:
    """Return the bytes of the routing blob, uncompressed."""
    return _container(
        [
            routing.HEAD.itemsize,
            14,
            *(0, 0, 0, 0),  # the partitions, which are apart
            routing.SHARD.itemsize * shape.shards,
            4 + 4 * shape.shards,
            routing.RECALL.itemsize,
            shape.property_bytes,
            routing.APART.itemsize,
        ]
    )


def partitions_size(shape: IndexShape) -> int:
    """Return the bytes of the partitions blob, uncompressed."""
    count = shape.shards * shape.partitions_per_shard
    width = metrics.search_dimension(shape.metric, shape.dimension)
    return _container(
        [partitions.HEAD.itemsize, 4 * count * width, 4 * count, 8 * count, 4 * count]
    )


def coverage_size(shape: IndexShape) -> int:
    """Return the bytes of the coverage blob of files without deleted rows, uncompressed."""
    return _container(
        [
            coverage.HEAD.itemsize,
            coverage.FILE.itemsize * shape.files,
            4 + shape.files * (4 + shape.path_bytes),
            4 * shape.files * shape.row_groups,
            0,
            4 + 4 + shape.path_bytes,
        ]
    )


def centroid_size(shape: IndexShape, entries: int) -> int:
    """Return the bytes of a centroid blob with so many entries, uncompressed."""
    return _container(
        [
            centroid.HEAD.itemsize,
            entries * centroid.entry(shape.dimension).itemsize,
            shape.files * (4 + shape.path_bytes),
        ]
    )


def _container(sections: Sequence[int]) -> int:
    padded = sum(length + -length % ALIGNMENT for length in sections)
    return HEADER.itemsize + padded + len(sections) * SECTION.itemsize + TRAILER.itemsize


def _codebook(shape: IndexShape) -> int:
    width = math.ceil(shape.dimension / shape.pq_subspaces)
    return 4 * shape.pq_subspaces * width << shape.pq_bits


def _mean_degree(shape: IndexShape, count: int) -> float:
    known = shape.mean_degree
    if known is None and shape.max_degree:
        doublings = math.log2(max(count, 2) / NATURAL_ROWS)
        natural = max(NATURAL_DEGREE + NATURAL_GROWTH * doublings, 4.0)
        powers = natural**-NATURAL_BEND + shape.max_degree**-NATURAL_BEND
        known = powers ** (-1 / NATURAL_BEND)
    return min(known or 0.0, shape.max_degree, max(count - 1, 0))


def _scaled(sample: tuple[int, int], count: int) -> int:
    """Scale the bytes of a sample (bytes, items) to `count` items."""
    size, items = sample
    return round(size * count / items) if items else 0


def _adjacency_sample(shape: IndexShape, count: int) -> tuple[int, int]:
    """Encode one block of nodes whose neighbours are drawn evenly from all rows of the shard."""
    nodes = min(count, graph.BLOCK_NODES)
    rng = np.random.default_rng(0)
    mean = _mean_degree(shape, count)
    spread = min(DEGREE_SPREAD * mean, max(min(shape.max_degree, count - 1) - mean, 0))
    degrees = np.rint(rng.uniform(mean - spread, mean + spread, nodes)).astype(np.uint16)
    widest = int(degrees.max(initial=0))
    drawn = rng.integers(0, count - widest + 1, (nodes, widest))
    drawn[np.arange(widest) >= degrees[:, None]] = count
    # Ascending values with j added to the j-th are distinct, and as evenly spread.
    lists = np.sort(drawn, axis=1) + np.arange(widest)
    return _encoded_adjacency(degrees, lists.astype(np.uint32), count), nodes


def _encoded_adjacency(degrees: np.ndarray, lists: np.ndarray, count: int) -> int:
    import zstandard

    from puffin_ann.blobs import blocks
    from puffin_ann.blobs.kernels import put_adjacency
    from puffin_ann.blobs.varints import MAX_BYTES

    out = np.empty(len(degrees) * (3 + MAX_BYTES * lists.shape[1]), np.uint8)
    used = put_adjacency(degrees, lists, count, out)
    return len(zstandard.ZstdCompressor(level=blocks.LEVEL).compress(out[:used].data))


def _locator_sample(shape: IndexShape, count: int) -> tuple[int, int]:
    """Encode locators of a shard whose rows lie evenly among those of the files."""
    kept = min(count, rows.BLOCK_ROWS)
    if not kept:
        return 0, 0
    rng = np.random.default_rng(0)
    gaps = rng.geometric(min(1.0, count / shape.rows), kept)
    positions = np.cumsum(gaps) - 1
    in_file = max(shape.rows // max(shape.files, 1), 1)
    in_group = max(in_file // max(shape.row_groups, 1), 1)
    locators = rows.Rows(
        (positions // in_file).astype(np.uint32),
        (positions % in_file // in_group).astype(np.uint32),
        (positions % in_file % in_group).astype(np.uint32),
    )
    size = rows.write(locators, io.BytesIO())
    return size - _container([rows.HEAD.itemsize, 0, 16]), kept


def _bitmap(members: int, size: int) -> int:
    """Bytes of a Roaring bitmap of members spread evenly below `size`."""
    if not members:
        return 8
    containers = min(math.ceil(size / 65536), members)
    per_container = members / containers
    return round(8 + containers * (8 + min(2 * per_container, 8192)))


def _unpacked(shape: IndexShape, count: int) -> int:
    per_row = 2 + 4 * shape.max_degree + shape.pq_subspaces + 4 * shape.dimension * shape.vectors
    width = _LANES * math.ceil(metrics.search_dimension(shape.metric, shape.dimension) / _LANES)
    if shape.max_degree and (shape.metric != "l2" or width != shape.dimension):
        per_row += 4 * width  # the rows once more, in the space that a graph is searched in
    return count * per_row + (_codebook(shape) if shape.pq_subspaces else 0)
