"""Predict how large an index will be, within a tenth, before it is built.

Bytes follow from the formats, which are asked for them. Only the links of graphs depend on how rows
lie, which `links` has: a range by rule, or one figure where a sample was measured.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from puffin_ann.ann.ivf import coded_rows
from puffin_ann.ann.ivf.lists import LEAST_ROWS, default_lists, default_subspaces
from puffin_ann.blobs.encoding.stored_vectors import BESIDE_BYTES, NUMBER_BYTES, Form
from puffin_ann.blobs.shards import columns as columns_blob
from puffin_ann.blobs.shards import graph, ivf
from puffin_ann.blobs.version import centroid, coverage, partitions, routing
from puffin_ann.declaration import CENTROID, MOST_SHARDS
from puffin_ann.declaration.fields.parameters import EXACT, HnswParameters, VamanaParameters
from puffin_ann.engines.links import MeasuredLinks, bytes_of_row, hnsw_bytes_of_row
from puffin_ann.errors import BadInputError
from puffin_ann.puffin.layout import MAX_JAVA_BLOB

MOST_ROWS = 10**15
"""Of a table that is asked about, and its row groups, each of which has one."""
MOST_FILES = 1 << 32
"""Of a table: their numbers have 32 bits."""
MOST_INCLUDED = columns_blob.MAX_COLUMNS * columns_blob.MAX_BLOCK_BYTES // columns_blob.BLOCK_ROWS
"""Bytes of a row's values that a columns blob keeps."""

MOST_OBJECT = 5 * 10**12
"""Bytes of the largest object that S3 takes."""
NEAR = 0.9
"""Share of a limit from which on it is told: shards differ."""
SPARED = 0.85
"""Share of a blob's limit that shards are chosen to have."""

BLOB_BYTES, FOOTER_BYTES, PATH_BYTES, PROPERTY_BYTES = 400, 260, 80, 2100
"""Of a blob in its container and in the footer, of a data file's path, of what a build notes."""
MANIFEST_BYTES, MANIFESTS = 40, 100
"""Of a manifest's name, and how many there are before Iceberg merges them: each has a file."""
IDENTITY_BYTES, LOCATOR_BYTES = 16, 12
"""Of a row in the rows blob, beside its place, and of its place in the cache."""


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
        shards: that rows are spread over, of fewer rows as many as rows; None: the fewest that
            Iceberg's Java reader can read.
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
        """Refuse what no table has; what no declaration may have, the declaration refuses."""
        for what, given, least, most in (
            ("dimension", self.dimension, 1, graph.MAX_DIMENSION),
            ("included bytes of a row", self.included, 0, MOST_INCLUDED),
            ("data files", self.files, 1, MOST_FILES),
            ("row groups, of one row each at least,", self.files * self.row_groups, 1, MOST_ROWS),
        ):
            if not least <= given <= most:
                raise BadInputError(f"{what} must be {least} to {most:,}, got {given:,}")


PARTS = {
    "row": "a row in its shard",
    "shard": "engine's blob of a shard",
    "rows": "rows blob of a shard",
    "columns": "columns blob of a shard",
    "routing": "routing blob",
    "partitions": "partitions blob",
    "coverage": "coverage blob",
    "footer": "footer",
    "file": "Puffin file",
    "cache": "local cache of all shards",
    "memory": "memory that searches touch",
}
"""What is sized, for people; nothing is compressed but links and places."""


@dataclass(frozen=True)
class Size:
    """Bytes of an index: of its `PARTS`, and of the file if rows have as few or as many links.

    That range is empty where the links are known, or there are none.
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


def predict(shape: Shape) -> tuple[Shape, Size]:
    """Return the sizes of an index, and its shape with the shards that were chosen."""
    shape = _in_shards(shape)
    shards = shape.shards or 0
    count = math.ceil(shape.rows / max(shards, 1))
    shard = _shard(shape, count)
    cells = shards * shape.partitions_per_shard
    place = place_bytes(cells)
    rows = columns = 0
    if shards:
        rows = math.ceil(count * (IDENTITY_BYTES + place)) + BLOB_BYTES
    if shards and shape.included:
        columns = math.ceil(count * (shape.included + place)) + BLOB_BYTES
    small = {
        "routing": (routing.SHARD.itemsize + 4) * shards + PROPERTY_BYTES,
        "partitions": partitions.size_of(cells, shape.metric, shape.dimension),
        "coverage": shape.files * (coverage.FILE.itemsize + 4 + PATH_BYTES + 4 * shape.row_groups)
        + MANIFEST_BYTES * min(shape.files, MANIFESTS)
        + BLOB_BYTES,
        "footer": FOOTER_BYTES * (3 + (3 if columns else 2) * shards),
    }
    blobs, parts = round(shard.blob), max(shards, 1)
    file = parts * (blobs + rows + columns) + sum(small.values())
    return shape, Size(
        row=round((blobs + rows + columns) / count) if shards and count else 0,
        shard=blobs,
        rows=rows,
        columns=columns,
        **small,
        file=file,
        file_least=file - shards * round(shard.fewer),
        file_most=file + shards * round(shard.more),
        cache=parts * shard.cache + LOCATOR_BYTES * count * shards,
        memory=parts * shard.touched + LOCATOR_BYTES * count * shards,
    )


def place_bytes(cells: int) -> float:
    """Return the bytes of a row's place in a blob whose rows are in so many cells."""
    return (math.log2(max(cells, 1)) + 3) / 8


def warnings(shape: Shape, size: Size) -> list[str]:
    """Return which limits are near or passed, and what to do, a sentence each."""
    what, more = "blob of a shard", "take more --shards"
    fewer, in_parts = "compact the table's files", "index in parts"
    if shape.algorithm == CENTROID:
        what, more = "centroids blob", fewer
    fewer_cells = "take fewer --partitions-per-shard"
    java = "that Iceberg's Java reader takes, and what is larger is not written"
    limits = (
        (what, "bytes", size.shard, MAX_JAVA_BLOB, java, more),
        ("partitions blob", "bytes", size.partitions, MAX_JAVA_BLOB, java, fewer_cells),
        ("coverage blob", "bytes", size.coverage, MAX_JAVA_BLOB, java, fewer),
        ("index", "shards", shape.shards or 0, MOST_SHARDS, "that may be declared", in_parts),
        ("file", "bytes", size.file, MOST_OBJECT, "that an object on S3 has", in_parts),
    )
    return [
        f"the {name} has {there:,} {of}, more than the {most:,} {why}: {hint}"
        if there > most
        else f"the {name} has {there:,} {of}, of at most {most:,} {why}; before it has more, {hint}"
        for name, of, there, most, why, hint in limits
        if there > NEAR * most
    ]


@dataclass(frozen=True)
class _Shard:
    """Bytes of a shard, or of what it has beside its vectors.

    Attributes:
        blob: of its engine.
        cache: unpacked, with what lies beside it.
        touched: of those, by searches, and what they make in memory.
        fewer, more: links of the blob may take so much less and more.
    """

    blob: float = 0
    cache: int = 0
    touched: int = 0
    fewer: float = 0
    more: float = 0


def _in_shards(shape: Shape) -> Shape:
    """Return a shape whose shards are known: the fewest whose blobs can be read."""
    if shape.algorithm == CENTROID:
        return replace(shape, shards=0, partitions_per_shard=0)
    if shape.shards is not None:
        return replace(shape, shards=max(1, min(shape.shards, shape.rows)))
    a_row = _shard(shape, 1 << 20).blob / (1 << 20)
    return replace(shape, shards=max(1, math.ceil(shape.rows * a_row / (SPARED * MAX_JAVA_BLOB))))


def _shard(shape: Shape, rows: int) -> _Shard:
    """Return what a shard of so many rows takes."""
    if shape.algorithm == CENTROID:
        return _centroids(shape)
    beside = ENGINES[shape.algorithm](shape, rows)
    form = shape.vectors
    if form == "none" and not beside.blob:
        form = "float32"  # nothing else tells of the rows
    written = unpacked = 0
    if form != "none":
        written = rows * (NUMBER_BYTES[form] * shape.dimension + BESIDE_BYTES[form])
        unpacked = rows * (NUMBER_BYTES["float32"] * shape.dimension + BESIDE_BYTES[form])
    return replace(
        beside,
        blob=written + beside.blob + BLOB_BYTES,
        cache=unpacked + beside.cache,
        touched=unpacked + beside.touched,
    )


def _exact(shape: Shape, rows: int) -> _Shard:
    """Degrees of a graph without links; in memory squares, and codes as far as there is room."""
    from puffin_ann.ann.exact.compared_rows import codes_bytes
    from puffin_ann.settings import settings

    room = settings().codes_max_bytes // max(shape.shards or 0, 1)
    return _Shard(cache=2 * rows, touched=8 * rows + min(codes_bytes(rows, shape.dimension), room))


def _ivf_pq(shape: Shape, rows: int) -> _Shard:
    """Lists, their codes once more in the order that they are scanned in, and rows by bytes."""
    if rows < LEAST_ROWS:
        return _Shard()
    d, lists = shape.dimension, default_lists(rows)
    m = shape.codes or default_subspaces(d)
    layout = ivf.Shape(shape.metric, rows, d, lists, m, ivf.BITS, math.ceil(d / m))
    sizes = {
        name: np.dtype(dtype).itemsize * math.prod(extent)
        for _, name, dtype, extent in layout.arrays()
    }
    listed = sum(sizes.values())
    packed = sizes["codes"] + 16 * lists * math.ceil(m / 2)  # the last block of a list is half full
    has_vectors = shape.vectors != "none"
    norms = 4 * rows if has_vectors and shape.metric == "cosine" else 0
    coded = rows * coded_rows.stride_of(d) if has_vectors and coded_rows.is_wide(d) else 0
    beside = packed + norms + coded
    searched = sizes["ordinals"] + sizes["biases"] + sizes["centroids"]
    return _Shard(listed, listed + beside, searched + beside)


def _hnsw(shape: Shape, rows: int) -> _Shard:
    """Layers, their links compressed in the blob, and rows as they are searched."""
    from puffin_ann.ann.hnsw.search import space_metric

    m = shape.degree or HnswParameters().M
    upper = rows / max(m - 1, 1)
    layers = rows * (8 * m + 3) + round(upper) * (4 * m + 2)
    layers += _space_bytes(shape, rows, space_metric(shape.metric))
    return _Shard(rows + rows * hnsw_bytes_of_row(rows, m), layers, layers)


def _vamana(shape: Shape, rows: int) -> _Shard:
    """Links, compressed in the blob, and codes; packed nodes, or rows as they are searched."""
    from puffin_ann.ann.graph.space import padded_dim
    from puffin_ann.ann.vamana.packed.layout import degree_of
    from puffin_ann.ann.vamana.packed_policy import expected_bytes

    d = shape.dimension
    most = degree_of(shape.degree or VamanaParameters().R, padded_dim(shape.metric, d))
    m = shape.codes or max(1, d // 4)
    codes = rows * m + 4 * m * 256 * math.ceil(d / m)
    least, likely, largest = bytes_of_row(shape.rows, rows, most, shape.links)
    adjacency = rows * (4 * most + 2)
    packed = expected_bytes(rows, shape.metric, d, most)
    space = 0 if packed else _space_bytes(shape, rows, shape.metric)
    return _Shard(
        blob=rows * likely + codes,
        cache=adjacency + codes + packed + space,
        touched=packed or adjacency + space,
        fewer=rows * (likely - least),
        more=rows * (largest - likely),
    )


ENGINES: Mapping[str, Callable[[Shape, int], _Shard]] = {
    "vamana": _vamana,
    "hnsw": _hnsw,
    "ivf_pq": _ivf_pq,
    EXACT: _exact,
}
"""What a shard of each algorithm has beside its vectors."""


def _space_bytes(shape: Shape, rows: int, metric: str) -> int:
    """Return the bytes of rows as a graph is searched by them; 0 if that is as they are stored."""
    from puffin_ann.ann.graph.space import is_needed, padded_dim

    is_apart = is_needed(metric, shape.dimension)
    return 4 * rows * padded_dim(metric, shape.dimension) if is_apart else 0


def _centroids(shape: Shape) -> _Shard:
    entries = shape.files * shape.centroids
    blob = entries * centroid.entry(shape.dimension).itemsize + shape.files * (4 + PATH_BYTES)
    kept = entries * (4 * shape.dimension + 64 * math.ceil((shape.dimension + 1) / 64) + 32)
    return _Shard(blob + BLOB_BYTES, 0, kept)
