"""Predict how large an index will be, within a tenth, before it is built.

Bytes a row for each algorithm and form of vectors, and what there is beside rows. Only two things
depend on how numbers fall: where rows stand in the table, a byte or two each, and the links of
graphs, which `links` has: a range by rule, or one figure where a sample was measured.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

from puffin_ann.ann.ivf import coded_rows
from puffin_ann.ann.ivf.lists import default_lists, default_subspaces
from puffin_ann.blobs import centroid, coverage, graph, partitions, routing
from puffin_ann.blobs.encoding import metrics
from puffin_ann.blobs.encoding.stored_vectors import NUMBER_BYTES, Form
from puffin_ann.declaration import AUTO, CENTROID, FORMS_OF, MetricName
from puffin_ann.engines.links import FEWEST, MeasuredLinks, by_rule, usual_degree
from puffin_ann.errors import BadInputError
from puffin_ann.puffin.footer import MAX_PAYLOAD
from puffin_ann.puffin.layout import MAX_JAVA_BLOB

MOST_OBJECT = 5 * 10**12
"""Bytes of the largest object that S3 takes."""
NEAR = 0.9
"""Share of a limit from which on it is told: shards differ."""
SPARED = 0.85
"""Share of a blob's limit that shards are chosen to have."""

LAYER_DEGREE, UPPER_DEGREE = 3.5, 2.3
"""Mean links in layer 0 of HNSW, and above, as multiples of the root of M."""

BLOB_BYTES, FOOTER_BYTES, PATH_BYTES, PROPERTY_BYTES = 400, 260, 80, 3000
"""Of a blob in its container and in the footer, of a data file's path, of what a build notes."""


@dataclass(frozen=True)
class Shape:
    """What decides the size of an index.

    Attributes:
        rows: indexed.
        dimension: numbers in a vector.
        algorithm: as declared.
        vectors: form that shards store them in.
        metric: as declared.
        degree: R of `vamana`, M of `hnsw`; None as by default.
        codes: `pq_m`; None as by default.
        shards: that rows are spread over; None: the fewest that Iceberg's Java reader can read.
        partitions_per_shard: k-means cells.
        files: of the table.
        row_groups: of a file.
        centroids: of a file, for `centroid`.
        included: bytes of a row's values of the columns kept beside it (`include`), as they
            compress.
        links: of a `vamana` graph over some of the rows; None: as of words and sentences.
    """

    rows: int
    dimension: int
    algorithm: str = "vamana"
    vectors: Form = "float32"
    metric: str = "cosine"
    degree: int | None = None
    codes: int | None = None
    shards: int | None = None
    partitions_per_shard: int = 32
    files: int = 1
    row_groups: int = 1
    centroids: int = 1
    included: float = 0.0
    links: MeasuredLinks | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        algorithms = [name for name in FORMS_OF if name != AUTO]
        wrong = {
            f"algorithm must be one of {', '.join(algorithms)}, got {self.algorithm!r}": (
                self.algorithm not in algorithms
            ),
            f"vectors must be one of {', '.join(FORMS_OF.get(self.algorithm, ()))} for "
            f"{self.algorithm!r}, got {self.vectors!r}": (
                self.vectors not in FORMS_OF.get(self.algorithm, (self.vectors,))
            ),
            f"metric must be one of {', '.join(get_args(MetricName))}, got {self.metric!r}": (
                self.metric not in get_args(MetricName)
            ),
            f"dimension must be 1 to {graph.MAX_DIMENSION}, got {self.dimension}": not (
                0 < self.dimension <= graph.MAX_DIMENSION
            ),
            f"included bytes of a row must be 0 or more, got {self.included}": not (
                0 <= self.included < math.inf
            ),
            f"codes of a row must be 1 to its {self.dimension} dimensions, got {self.codes}": (
                self.codes is not None and not 0 < self.codes <= self.dimension
            ),
        }
        for message, there in wrong.items():
            if there:
                raise BadInputError(message)


@dataclass(frozen=True)
class Size:
    """Bytes of an index, and what searches take.

    Attributes:
        row: of a row in its shard, on average.
        shard: engine's blob of a shard.
        rows: rows blob of a shard.
        columns: columns blob of a shard: included values, and where their rows were.
        routing, partitions, coverage: blobs, not compressed.
        footer: of the Puffin file, not compressed.
        file: all of it, in one file.
        file_least, file_most: the same if rows have as few or as many links as there may be; equal
            where that is known, or there are none.
        cache: on local disk, of a search of all shards.
        memory: of that, what searches touch.
        requests: to S3 for a first answer from every shard by ranges, at least.
    """

    row: int
    shard: int
    rows: int
    columns: int
    routing: int
    partitions: int
    coverage: int
    footer: int
    file: int
    file_least: int
    file_most: int
    cache: int
    memory: int
    requests: int


def predict(shape: Shape) -> tuple[Shape, Size]:
    """Return the sizes of an index, and its shape with the shards that were chosen."""
    if shape.algorithm == CENTROID:
        shape = replace(shape, shards=0, partitions_per_shard=0)
    elif shape.shards is None:
        a_row = _engine(shape, 1 << 20)[0] / (1 << 20)
        shape = replace(
            shape, shards=max(1, math.ceil(shape.rows * a_row / (SPARED * MAX_JAVA_BLOB)))
        )
    shards = shape.shards or 0
    count = math.ceil(shape.rows / max(shards, 1))
    shard, cache, memory = _engine(shape, count) if shards else _centroids(shape)
    places = math.log2(max(shards * shape.partitions_per_shard, 1)) + 3
    rows = math.ceil(count * (16 + places / 8)) + BLOB_BYTES if shards else 0
    is_included = shards and shape.included
    columns = math.ceil(count * (shape.included + places / 8)) + BLOB_BYTES if is_included else 0
    small = {
        "routing": routing.SHARD.itemsize * shards + 4 * shards + PROPERTY_BYTES,
        "partitions": partitions.size_of(
            shards * shape.partitions_per_shard, shape.metric, shape.dimension
        ),
        "coverage": shape.files * (coverage.FILE.itemsize + 4 + PATH_BYTES + 4 * shape.row_groups)
        + BLOB_BYTES,
    }
    footer = FOOTER_BYTES * (3 + (3 if columns else 2) * shards)
    whole = max(shards, 1) * (shard + rows + columns) + sum(small.values()) + footer
    fewer, more = _links_off(shape, count) if shards else (0, 0)
    return shape, Size(
        row=round((shard + rows + columns) / max(count, 1)) if shards else 0,
        shard=shard,
        rows=rows,
        columns=columns,
        **small,
        footer=footer,
        file=whole,
        file_least=whole - shards * fewer,
        file_most=whole + shards * more,
        cache=max(shards, 1) * (cache + 16 * count * (shards > 0)),
        memory=max(shards, 1) * memory,
        requests=2 + 6 * shards,  # of each the ends of two blobs, and a cell of both
    )


def warnings(shape: Shape, size: Size) -> list[str]:
    """Return which limits are near or passed, and what to do, a sentence each."""
    what = "centroids blob" if shape.algorithm == CENTROID else "blob of a shard"
    fewer = "compact the table's files"
    more = fewer if shape.algorithm == CENTROID else "take more --shards"
    fewer_cells = "take fewer --partitions-per-shard"
    java = "that Iceberg's Java reader takes, and what is larger is not written"
    limits = (
        (what, size.shard, MAX_JAVA_BLOB, java, more),
        ("partitions blob", size.partitions, MAX_JAVA_BLOB, java, fewer_cells),
        ("coverage blob", size.coverage, MAX_JAVA_BLOB, java, fewer),
        ("footer", size.footer, MAX_PAYLOAD, "that readers take", "take fewer --shards"),
        ("file", size.file, MOST_OBJECT, "of an object on S3", "index in parts"),
    )
    return [
        f"the {name} has {there:,} bytes, of at most {most:,} {why}: {hint}"
        for name, there, most, why, hint in limits
        if there > NEAR * most
    ]


def _engine(shape: Shape, count: int) -> tuple[int, int, int]:
    """Return the bytes of a shard of so many rows: of its blob, in the cache, and touched there."""
    d, n = shape.dimension, count
    form = shape.vectors
    errors: Literal[0, 4, 8] = 8 if form == "int8" else 4 if form == "float16" else 0
    stored = n * (NUMBER_BYTES[form] * d + errors)
    unpacked = n * (4 * d + errors) if form != "none" else 0
    if shape.algorithm == "ivf_pq":
        lists, m = default_lists(n), shape.codes or default_subspaces(d)
        wide = metrics.search_dimension(shape.metric, d)
        trained = 4 * lists * wide + 4 * m * 16 * math.ceil(d / m)
        listed = n * (math.ceil(m / 2) + 8) + trained
        if not lists:
            return 4 * n * d + BLOB_BYTES, 4 * n * d, 4 * n * d
        norms = 4 * n if shape.metric == "cosine" and form != "none" else 0
        packed = (n + 16 * lists) * math.ceil(m / 2)
        coded = n * coded_rows.stride_of(d) if coded_rows.is_wide(d) and form != "none" else 0
        touched = unpacked + packed + coded + 8 * n + 4 * lists * wide + norms
        cache = unpacked + listed + packed + coded + norms
        return stored + listed + BLOB_BYTES, cache, touched
    if shape.algorithm == "exact":
        return stored + BLOB_BYTES, unpacked + 2 * n, unpacked
    from puffin_ann.ann.graph.space import is_needed, padded_dim

    space = 4 * n * padded_dim(shape.metric, d) if is_needed(shape.metric, d) else 0
    if shape.algorithm == "hnsw":
        m = shape.degree or 16
        upper = n / max(m - 1, 1)
        links = n * by_rule(n, min(LAYER_DEGREE * math.sqrt(m), 2 * m))
        links += upper * by_rule(n, UPPER_DEGREE * math.sqrt(m))
        wide = n * (8 * m + 3) + round(upper) * (4 * m + 2)
        return (
            round(stored + links) + n + BLOB_BYTES,
            unpacked + wide + space,
            unpacked + wide + space,
        )
    from puffin_ann.ann.graph.space import padded_dim
    from puffin_ann.ann.vamana.packed.layout import degree_of
    from puffin_ann.ann.vamana.packed_policy import expected_bytes

    most = degree_of(shape.degree or 64, padded_dim(shape.metric, d))
    codes = shape.codes or max(1, d // 4)
    links = n * _links_of_row(shape, n, most)
    codebook = 4 * codes * 256 * math.ceil(d / codes)
    packed = expected_bytes(n, shape.metric, d, most)
    wide = n * (4 * most + 2)
    cache = unpacked + wide + n * codes + codebook + space + packed
    touched = unpacked + (packed or wide + space)
    return round(stored + links) + n * codes + codebook + BLOB_BYTES, cache, touched


def _links_of_row(shape: Shape, count: int, most: int) -> float:
    if shape.links is not None and count > 1:
        return shape.links.of_row(shape.rows, count, most)
    return by_rule(count, usual_degree(count, most))


def _links_off(shape: Shape, count: int) -> tuple[int, int]:
    """Return how many bytes fewer, and more, the links of a shard may have."""
    if shape.algorithm != "vamana" or shape.links is not None:
        return 0, 0
    from puffin_ann.ann.graph.space import padded_dim
    from puffin_ann.ann.vamana.packed.layout import degree_of

    most = degree_of(shape.degree or 64, padded_dim(shape.metric, shape.dimension))
    usual = by_rule(count, usual_degree(count, most))
    least = min(by_rule(count, min(FEWEST, most)), usual)
    return round(count * (usual - least)), round(count * (max(by_rule(count, most), usual) - usual))


def _centroids(shape: Shape) -> tuple[int, int, int]:
    entries = shape.files * shape.centroids
    blob = entries * centroid.entry(shape.dimension).itemsize + shape.files * (4 + PATH_BYTES)
    kept = entries * (4 * shape.dimension + 64 * math.ceil((shape.dimension + 1) / 64) + 32)
    return blob + BLOB_BYTES, 0, kept
