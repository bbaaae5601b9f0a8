"""Predict how large an index will be, within a tenth, before it is built.

A shard is a list of what it holds, each with its bytes in the blob, in the cache and in memory.
They follow from the formats, which are asked for them. Only the links of graphs depend on how rows
lie, which `links` has: a range by rule, or one figure where a sample was measured.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from puffin_ann.ann.exact.compared_rows import codes_bytes
from puffin_ann.ann.graph.space import is_needed, padded_dim
from puffin_ann.ann.ivf import coded_rows
from puffin_ann.ann.ivf.lists import LEAST_ROWS, default_lists, default_subspaces
from puffin_ann.blobs.encoding.stored_vectors import BESIDE_BYTES, NUMBER_BYTES
from puffin_ann.blobs.shards import columns as columns_blob
from puffin_ann.blobs.shards import graph, ivf
from puffin_ann.blobs.version import centroid, coverage, partitions, routing
from puffin_ann.declaration import CENTROID, EXACT, MOST_SHARDS, IndexDeclaration
from puffin_ann.engines.base import check_subspaces
from puffin_ann.engines.links import MeasuredLinks, bytes_of_row, hnsw_bytes_of_row
from puffin_ann.errors import BadInputError
from puffin_ann.puffin.layout import MAX_JAVA_BLOB
from puffin_ann.settings import settings

MOST_ROWS, MOST_FILES = 10**15, 1 << 32
"""Of a table that is asked about; row groups have a row each, and numbers of files 32 bits."""
MOST_INCLUDED = columns_blob.MAX_COLUMNS * columns_blob.MAX_BLOCK_BYTES // columns_blob.BLOCK_ROWS
"""Bytes of a row's values that a columns blob keeps."""
MOST_OBJECT = 5 * 10**12
"""Bytes of the largest object that S3 takes."""
NEAR, CHOSEN = 0.9, 0.85
"""Shares of a limit: from which on it is told, since shards differ, and that shards are given."""

BLOB_BYTES, FOOTER_BYTES, PATH_BYTES, PROPERTY_BYTES = 400, 260, 80, 2100
"""Of a blob in its container and in the footer, of a data file's path, of what a build notes."""
MANIFEST_BYTES, MANIFESTS = 40, 100
"""Of a manifest's name, and how many there are before Iceberg merges them: each has a file."""
IDENTITY_BYTES, LOCATOR_BYTES = 16, 12
"""Of a row in the identities blob, and of its place in the cache."""


@dataclass(frozen=True)
class Shape:
    """What decides the size of an index.

    Attributes:
        index: as it is declared.
        rows: indexed.
        dimension: numbers in a vector.
        files: of the table.
        row_groups: of a file.
        included: bytes of a row's values of the columns kept beside it (`include`), as they
            compress.
        links: of a `vamana` graph over some of the rows; None: as of words and sentences.
    """

    index: IndexDeclaration
    rows: int
    dimension: int
    files: int = 1
    row_groups: int = 1
    included: float = 0.0
    links: MeasuredLinks | None = None

    def __post_init__(self) -> None:
        """Refuse what no table has, and more codes of a row than it has numbers."""
        for what, given, least, most in (
            ("dimension", self.dimension, 1, graph.MAX_DIMENSION),
            ("included bytes of a row", self.included, 0, MOST_INCLUDED),
            ("data files", self.files, 1, MOST_FILES),
            ("row groups, of one row each at least,", self.files * self.row_groups, 1, MOST_ROWS),
        ):
            if not least <= given <= most:
                raise BadInputError(f"{what} must be {least} to {most:,}, got {given:,}")
        check_subspaces(self.index.algorithm, self.parameters, self.dimension)

    @property
    def parameters(self) -> Any:
        """Of the algorithm."""
        return self.index.parameters

    @property
    def shards(self) -> int:
        """That rows are spread over: as a build makes of few rows as many as rows."""
        return min(self.index.shards_built, max(self.rows, 1))

    @property
    def shard_rows(self) -> int:
        """Rows of a shard."""
        return math.ceil(self.rows / self.shards) if self.shards else 0

    @property
    def cells(self) -> int:
        """Of k-means, of all shards."""
        return self.shards * self.index.partitions_per_shard


@dataclass(frozen=True)
class Size:
    """Bytes of an index, each with what people are told it is of.

    Those of the file are told once more as they are if rows have as few or as many links as they
    can: the same where links are known, or there are none.
    """

    row: int = field(metadata={"what": "a row in its shard"})
    shard: int = field(metadata={"what": "engine's blob of a shard"})
    rows: int = field(metadata={"what": "rows blob of a shard"})
    identities: int = field(metadata={"what": "identities blob of a shard"})
    columns: int = field(metadata={"what": "columns blob of a shard"})
    routing: int = field(metadata={"what": "routing blob"})
    partitions: int = field(metadata={"what": "partitions blob"})
    coverage: int = field(metadata={"what": "coverage blob"})
    footer: int = field(metadata={"what": "footer"})
    file: int = field(metadata={"what": "Puffin file"})
    file_least: int = field(metadata={"what": "  at least, by how rows lie (see --table)"})
    file_most: int = field(metadata={"what": "  at most"})
    cache: int = field(metadata={"what": "local cache of all shards"})
    memory: int = field(metadata={"what": "memory that searches touch"})


def in_fewest_shards(shape: Shape) -> Shape:
    """Return an index of as few shards as have blobs that Iceberg's Java reader can read."""
    of_row = _engine(shape, 1 << 20).blob / (1 << 20)
    shards = max(1, math.ceil(shape.rows * of_row / (CHOSEN * MAX_JAVA_BLOB)))
    return replace(shape, index=shape.index.model_copy(update={"shards": shards}))


def predict(shape: Shape) -> Size:
    """Return the sizes of an index."""
    shards, count, place = shape.shards, shape.shard_rows, place_bytes(shape.cells)
    engine = _engine(shape, count)
    shard, rows, identities, columns = round(engine.blob), 0, 0, 0
    if shards:
        rows = math.ceil(count * place) + BLOB_BYTES
        identities = count * IDENTITY_BYTES + BLOB_BYTES
    if shards and shape.included:
        columns = math.ceil(count * (shape.included + place)) + BLOB_BYTES
    small = {
        "routing": (routing.SHARD.itemsize + 4) * shards + PROPERTY_BYTES,
        "partitions": partitions.size_of(shape.cells, shape.index.metric, shape.dimension),
        "coverage": shape.files * (coverage.FILE.itemsize + 4 + PATH_BYTES + 4 * shape.row_groups)
        + MANIFEST_BYTES * min(shape.files, MANIFESTS)
        + BLOB_BYTES,
        "footer": FOOTER_BYTES * (3 + (4 if columns else 3) * shards),
    }
    parts, located = max(shards, 1), LOCATOR_BYTES * count * shards
    of_shard = shard + rows + identities + columns
    file = parts * of_shard + sum(small.values())
    return Size(
        row=round(of_shard / count) if count else 0,
        shard=shard,
        rows=rows,
        identities=identities,
        columns=columns,
        **small,
        file=file,
        file_least=file - shards * round(engine.fewer),
        file_most=file + shards * round(engine.more),
        cache=parts * engine.cache + located,
        memory=parts * engine.memory + located,
    )


def place_bytes(cells: int) -> float:
    """Return the bytes of a row's place in a blob whose rows are in so many cells."""
    return (math.log2(max(cells, 1)) + 3) / 8


def warnings(shape: Shape, size: Size) -> list[str]:
    """Return which limits are near or passed, and what to do, a sentence each."""
    what, more = "blob of a shard", "take more --shards"
    fewer, in_parts = "compact the table's files", "index in parts"
    if not shape.shards:
        what, more = "centroids blob", fewer
    fewer_cells = "take fewer --partitions-per-shard"
    java = "that Iceberg's Java reader takes, and what is larger is not written"
    limits = (
        (what, "bytes", size.shard, MAX_JAVA_BLOB, java, more),
        ("partitions blob", "bytes", size.partitions, MAX_JAVA_BLOB, java, fewer_cells),
        ("coverage blob", "bytes", size.coverage, MAX_JAVA_BLOB, java, fewer),
        ("index", "shards", shape.shards, MOST_SHARDS, "that may be declared", in_parts),
        ("file", "bytes", size.file, MOST_OBJECT, "that an object on S3 has", in_parts),
    )
    return [
        f"the {name} has {there:,} {of}, more than the {most:,} {why}: {hint}"
        if there > most
        else f"the {name} has {there:,} {of}, of at most {most:,} {why}; before it has more, {hint}"
        for name, of, there, most, why, hint in limits
        if there > NEAR * most
    ]


class _Held(NamedTuple):
    """Bytes of something that a shard holds, or of all of it.

    Attributes:
        blob: as it is written.
        cache: on the local disk.
        memory: of those that searches touch, and of what they make.
        fewer, more: that the blob may take, by how rows lie.
    """

    blob: float = 0
    cache: int = 0
    memory: int = 0
    fewer: float = 0
    more: float = 0


def _engine(shape: Shape, rows: int) -> _Held:
    """Return what a shard of so many rows holds for its engine."""
    held, form = HELD_BY[shape.index.algorithm](shape, rows), shape.index.vectors
    if form == "none" and not held:
        form = "float32"  # nothing else tells of the rows
    if form != "none":
        unpacked = rows * (NUMBER_BYTES["float32"] * shape.dimension + BESIDE_BYTES[form])
        written = rows * (NUMBER_BYTES[form] * shape.dimension + BESIDE_BYTES[form])
        held.append(_Held(written, unpacked, unpacked))
    held.append(_Held(blob=BLOB_BYTES))
    return _Held(*(sum(column) for column in zip(*held, strict=True)))


def _exact(shape: Shape, rows: int) -> list[_Held]:
    """Degrees of a graph without links; in memory squares, and codes as far as there is room."""
    room = settings().codes_max_bytes // shape.shards
    codes = min(codes_bytes(rows, shape.dimension), room)
    return [_Held(cache=2 * rows), _Held(memory=8 * rows), _Held(memory=codes)]


def _ivf_pq(shape: Shape, rows: int) -> list[_Held]:
    """Lists, their codes once more in the order that they are scanned in, and rows by bytes."""
    if rows < LEAST_ROWS:
        return []
    d, lists, metric = shape.dimension, default_lists(rows), shape.index.metric
    m = shape.parameters.pq_m or default_subspaces(d)
    layout = ivf.Shape(metric, rows, d, lists, m, ivf.BITS, math.ceil(d / m))
    sizes = {
        name: np.dtype(dtype).itemsize * math.prod(extent)
        for _, name, dtype, extent in layout.arrays()
    }
    listed = sum(sizes.values())
    searched = sizes["ordinals"] + sizes["biases"] + sizes["centroids"]
    packed = sizes["codes"] + 16 * lists * math.ceil(m / 2)  # the last block of a list is half full
    held = [_Held(listed, listed, searched), _Held(cache=packed, memory=packed)]
    if shape.index.vectors != "none":
        norms = 4 * rows if metric == "cosine" else 0
        coded = rows * coded_rows.stride_of(d) if coded_rows.is_wide(d) else 0
        held += [_Held(cache=norms, memory=norms), _Held(cache=coded, memory=coded)]
    return held


def _hnsw(shape: Shape, rows: int) -> list[_Held]:
    """Layers, their links compressed in the blob, and rows as they are searched."""
    from puffin_ann.ann.hnsw.search import space_metric

    m: int = shape.parameters.M
    layers = rows * (8 * m + 3) + round(rows / (m - 1)) * (4 * m + 2)
    links = rows + rows * hnsw_bytes_of_row(rows, m)
    return [_Held(links, layers, layers), _space(shape, rows, space_metric(shape.index.metric))]


def _vamana(shape: Shape, rows: int) -> list[_Held]:
    """Links, compressed in the blob; packed nodes, or codes, or rows as they are searched."""
    from puffin_ann.ann.vamana.packed.layout import degree_of
    from puffin_ann.ann.vamana.packed_policy import expected_bytes, reads_codes

    d, metric, beam = shape.dimension, shape.index.metric, shape.parameters.beam
    degree = degree_of(shape.parameters.R, padded_dim(metric, d))
    codes, of_row = 0, bytes_of_row(shape.rows, rows, degree, shape.links)
    if reads_codes(beam, rows, metric, d, degree):
        m = shape.parameters.pq_m or max(1, d // 4)
        codes = rows * m + 4 * m * 2**shape.parameters.pq_nbits * math.ceil(d / m)
    least, likely, most = (rows * links for links in of_row)
    packed = expected_bytes(rows, metric, d, degree) if beam in ("auto", "edges") else 0
    if packed:  # links are in them, but for how many each row has
        return [_Held(likely, 2 * rows, 0, likely - least, most - likely), _Held(0, packed, packed)]
    adjacency = rows * (4 * degree + 2)
    return [
        _Held(likely, adjacency, adjacency, likely - least, most - likely),
        _Held(codes, codes, codes),
        _space(shape, rows, metric),
    ]


def _centroid(shape: Shape, rows: int) -> list[_Held]:
    """Centroids of data files, and none of their rows."""
    del rows
    d, entries = shape.dimension, shape.files * shape.parameters.centroids
    blob = entries * centroid.entry(d).itemsize + shape.files * (4 + PATH_BYTES)
    return [_Held(blob, memory=entries * (4 * d + 64 * math.ceil((d + 1) / 64) + 32))]


HELD_BY: Mapping[str, Callable[[Shape, int], list[_Held]]] = {
    "vamana": _vamana,
    "hnsw": _hnsw,
    "ivf_pq": _ivf_pq,
    EXACT: _exact,
    CENTROID: _centroid,
}
"""What a shard of each algorithm holds beside its vectors."""


def _space(shape: Shape, rows: int, metric: str) -> _Held:
    """Return rows as a graph is searched by them; nothing if that is as they are stored."""
    is_apart = is_needed(metric, shape.dimension)
    size = 4 * rows * padded_dim(metric, shape.dimension) if is_apart else 0
    return _Held(cache=size, memory=size)
