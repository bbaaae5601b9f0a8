"""Predict how large an index will be, before it is built.

Fixed parts follow the formulas of `docs/format.md`. Two parts depend on how numbers fall, locators
and adjacency: of those one block is made up (gaps between the rows of a shard, neighbours drawn
from the row's own cell and from all of them) and encoded for real, so that the prediction is right
about varints and zstd too.

The mean degree of a graph depends on the data. Given it (`mean_degree`, or `mean_degree_of` a shard
of such data, about as many rows and cells), an index is predicted within 2 %; without vectors
within 2 % where shards have a few cells, and some 6 % too large where they have 32. Left to the
default, the adjacency may be a third off: the index is right within 2 % where vectors outweigh
that, from some 250 dimensions on, within 5 % at 100 dimensions, and not at all below 20.

Rows that are near each other are often near each other in the table, too, which makes gaps
smaller than even ones: of GloVe words in order of frequency the adjacency takes 2 % less than
predicted. Rows of a cell stand side by side, and much of what a row is linked to is in its cell.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from puffin_ann.blobs import centroid, coverage, graph, partitions, routing, rows, tombstones
from puffin_ann.blobs.encoding import metrics
from puffin_ann.blobs.encoding.container import ContainerReader, length_of
from puffin_ann.blobs.encoding.container_layout import ALIGNMENT_BY_RANGES
from puffin_ann.blobs.sizing.sampled import (
    adjacency_sample,
    locator_sample,
    scale,
)
from puffin_ann.blobs.sizing.shape import IndexShape

_FOOTER_FILE = 120
_FOOTER_BLOB = 260
_FILE_BLOBS = 3  # routing, partitions, coverage
_LANES = 16  # rows that a graph is searched by are padded to so many numbers


@dataclass(frozen=True)
class IndexSize:
    """Bytes of an index: of one shard's blobs, of the blobs of all, and in the search cache."""

    shard: int
    rows: int
    tombstones: int
    routing: int
    partitions: int
    coverage: int
    file: int
    unpacked: int


def fewest_shards(
    shape: IndexShape, measure: Callable[[IndexShape, int], int] | None = None
) -> int:
    """Return the fewest shards whose blobs Java can read, which takes up to 2 GiB.

    A tenth is left to spare, since shards differ. The shards of `shape` itself do not count.

    Args:
        shape: of the index.
        measure: gives the bytes of a shard's blob of so many rows; default: of a graph blob.
    """
    sample = 1 << 20
    per_row = (measure or graph_size)(shape, sample) / sample
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
    located = rows.open_reader(rows_source)
    cells = cells_of(located, count)
    told = {
        "dimension": int(head["dimension"]),
        "metric": metrics.name(int(head["metric"]), "graph blob"),
        "max_degree": most,
        "pq_subspaces": int(head["pq_subspaces"]),
        "pq_bits": int(head["pq_bits"]) or 8,
        "vectors": "vecs" in reader,
        "identities": "iden" in located,
        "partitions_per_shard": cells,
    }
    if most and count:
        adjacency = reader.section_length("adja")
        told["mean_degree"] = mean_degree_of(adjacency, count, most, cells)
    return told


def cells_of(located: ContainerReader, count: int) -> int:
    """Return how many cells a rows blob of so many rows is in the order of; 1 without any."""
    cells = rows.read_cells(located, count)
    return 1 if cells is None else max(len(cells.cells), 1)


def predict(shape: IndexShape, blob: int | None = None, unpacked: int | None = None) -> IndexSize:
    """Return the sizes of an index of a shape; shards are taken to be equal.

    Args:
        shape: of the index.
        blob: bytes of a shard's blob; default: of a graph blob.
        unpacked: bytes of a shard in the search cache; as above.
    """
    rows = math.ceil(shape.rows / shape.shards)
    return _sized(
        shape,
        shard=graph_size(shape, rows) if blob is None else blob,
        rows=rows_size(shape, rows),
        tombstones=tombstones_size(shape, rows),
        unpacked=shape.shards * (_unpacked(shape, rows) if unpacked is None else unpacked),
    )


def predict_without_shards(shape: IndexShape, blob: int, unpacked: int) -> IndexSize:
    """Return the sizes of an index of one blob and no shard, which centroids of files are."""
    nothing = replace(shape, rows=0, shards=1, partitions_per_shard=0)
    return _sized(nothing, shard=blob, rows=0, tombstones=0, unpacked=unpacked)


def _sized(
    shape: IndexShape, *, shard: int, rows: int, tombstones: int, unpacked: int
) -> IndexSize:
    """Return the sizes of an index by those of the blobs of a shard, where 0 stands for none."""
    routing, partitions, coverage = (
        size(shape) for size in (routing_size, partitions_size, coverage_size)
    )
    parts = (shard, rows, tombstones)
    blobs = _FILE_BLOBS + shape.shards * sum(part > 0 for part in parts)
    footer = _FOOTER_FILE + _FOOTER_BLOB * blobs
    return IndexSize(
        shard=shard,
        rows=rows,
        tombstones=tombstones,
        routing=routing,
        partitions=partitions,
        coverage=coverage,
        file=ALIGNMENT_BY_RANGES
        + shape.shards * sum(map(_placed, parts))
        + sum(map(_placed, (routing, partitions, coverage)))
        + footer,
        unpacked=unpacked,
    )


def _placed(length: int) -> int:
    """Return the bytes that a blob takes in a file."""
    return length + -length % ALIGNMENT_BY_RANGES


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
            adjacency_size(shape, count, count),
            8 * (math.ceil(count / graph.BLOCK_NODES) + 1),
        ]
    if shape.vectors:
        sections.append(4 * count * shape.dimension)
    return length_of(sections, by_ranges=True)


def adjacency_size(shape: IndexShape, count: int, lists: int) -> int:
    """Return the bytes of lists of neighbours among `count` rows, as a graph of a shape has."""
    return scale(adjacency_sample(shape, count), lists)


def mean_degree_of(adjacency: int, count: int, max_degree: int, cells: int) -> float:
    """Return the mean degree of a real shard, from the bytes of its section `adja`.

    More exactly the one by which such a section is predicted, of rows in the order of so many
    cells, which is what is wanted here.
    """
    low, high = 0.0, float(max_degree)
    for _ in range(24):
        mean = (low + high) / 2
        shape = IndexShape(
            count, 1, max_degree=max_degree, mean_degree=mean, partitions_per_shard=cells
        )
        sample = adjacency_sample(shape, count)
        if scale(sample, count) < adjacency:
            low = mean
        else:
            high = mean
    return high


def rows_size(shape: IndexShape, count: int) -> int:
    """Return the bytes of the rows blob of a shard of `count` rows, in the order of its cells."""
    sections = [
        rows.HEAD.itemsize,
        scale(locator_sample(shape, count), count),
        8 * (math.ceil(count / rows.BLOCK_ROWS) + 1),
    ]
    if shape.identities:
        sections.append(16 * count)
    sections.append(4 * (2 * shape.partitions_per_shard + 1))
    return length_of(sections, by_ranges=True)


def tombstones_size(shape: IndexShape, count: int) -> int:
    """Return the bytes of the tombstones blob of a shard of `count` rows."""
    deleted = round(count * shape.tombstone_ratio)
    return length_of([tombstones.HEAD.itemsize, _bitmap(deleted, count)])


def routing_size(shape: IndexShape) -> int:
    """Return the bytes of the routing blob, uncompressed."""
    return length_of(
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
    return length_of([partitions.HEAD.itemsize, 4 * count * width, 4 * count, 8 * count, 4 * count])


def coverage_size(shape: IndexShape) -> int:
    """Return the bytes of the coverage blob of files without deleted rows, uncompressed."""
    return length_of(
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
    return length_of(
        [
            centroid.HEAD.itemsize,
            entries * centroid.entry(shape.dimension).itemsize,
            shape.files * (4 + shape.path_bytes),
        ]
    )


def _codebook(shape: IndexShape) -> int:
    width = math.ceil(shape.dimension / shape.pq_subspaces)
    return 4 * shape.pq_subspaces * width << shape.pq_bits


def _bitmap(members: int, size: int) -> int:
    """Bytes of a Roaring bitmap of members spread evenly below `size`."""
    if not members:
        return 8
    containers = min(math.ceil(size / 65536), members)
    per_container = members / containers
    return round(8 + containers * (8 + min(2 * per_container, 8192)))


def _unpacked(shape: IndexShape, count: int) -> int:
    per_row = 2 + 4 * shape.max_degree + shape.pq_subspaces + 4 * shape.dimension * shape.vectors
    if shape.max_degree:
        per_row += space_size(shape)
    return count * per_row + (_codebook(shape) if shape.pq_subspaces else 0)


def space_size(shape: IndexShape) -> int:
    """Return the bytes of a row in the space that a graph is searched in; 0 if it is the vector."""
    width = _LANES * math.ceil(metrics.search_dimension(shape.metric, shape.dimension) / _LANES)
    return 4 * width if shape.metric != "l2" or width != shape.dimension else 0
