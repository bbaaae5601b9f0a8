"""The graph blob: one shard's proximity graph, its codes and its vectors.

Wire form and searched form differ: on the wire the adjacency is compressed, in memory every node's
list has a fixed width. `unpack` turns one into the other, streaming, and checks every checksum,
degree and neighbour on the way, so that a search kernel may trust what it is given.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import blocks, mapped, metrics, stored_vectors, strings
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter, Sink
from puffin_ann.blobs.encoding.stored_vectors import PLAIN, Form, Stored
from puffin_ann.blobs.encoding.varint_faults import MESSAGES
from puffin_ann.blobs.encoding.varints import MAX_BYTES
from puffin_ann.errors import BlobFormatError, LocalCopyError, OutputLimitError

KIND = "grph"
TYPE = "puffin-ann-graph-v1"

HEAD = np.dtype(
    [
        ("rows", "<u8"),
        ("dimension", "<u4"),
        ("metric", "<u4"),
        ("max_degree", "<u4"),
        ("build_width", "<u4"),
        ("alpha", "<f8"),
        ("entry", "<u4"),
        ("block_nodes", "<u4"),
        ("pq_subspaces", "<u4"),
        ("pq_bits", "<u4"),
        ("pq_width", "<u4"),
        ("flags", "<u4"),
    ]
)

BLOCK_NODES = 4096
MAX_BLOCK_NODES = 1 << 16
MAX_ROWS = 1 << 32
MAX_DIMENSION = 1 << 16
MAX_DEGREE = 4096
HAS_VECTORS = 1

EXPANSION = 128
"""`unpack` writes at most this many times the blob's length, and `SMALL` bytes more: far above
what real graphs need (about 5), and a bound for made-up ones whose lists are all empty."""
SMALL = 64 << 20


@dataclass(frozen=True, eq=False)
class Graph:
    """A shard's graph; arrays may be memory-mapped.

    Attributes:
        metric: `"l2"`, `"cosine"` or `"ip"`.
        max_degree: width R of `neighbours`; 0 for a shard without graph (searched exhaustively).
        build_width: L of the build.
        alpha: slack of the pruning rule.
        entry: ordinal a search begins at; 0 in an empty shard.
        codebook: `(m, 2**nbits, w) float32`, or None; sub-space j uses the first
            `subspace_offsets[j + 1] - subspace_offsets[j]` of the `w` columns, the rest is 0.
        codes: `(n, m) uint8`, each below `2**nbits`; None without codebook.
        degrees: `(n,) uint16`.
        neighbours: `(n, max_degree) uint32`; each list is ascending once it has been through the
            blob, and 0 beyond the degree. Order carries no meaning. None where a folder has them in
            packed nodes alone.
        vectors: `(n, d) float32` as stored in the table, or None.
        dimension: d.
        subspace_offsets: `(m + 1,) uint32`, where each sub-space begins in a vector; from 0 to d
            (or to d + 1, for `ip` where codes are of augmented vectors). May be left out if m
            divides d.
        properties: free text: which builder, which seed.
    """

    metric: str
    max_degree: int
    build_width: int
    alpha: float
    entry: int
    codebook: NDArray[np.float32] | None
    codes: NDArray[np.uint8] | None
    degrees: NDArray[np.uint16]
    neighbours: NDArray[np.uint32] | None
    vectors: NDArray[np.float32] | None
    dimension: int
    subspace_offsets: NDArray[np.uint32] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows n."""
        return len(self.degrees)


def write(graph: Graph, out: Sink, stored: Stored = PLAIN) -> int:
    """Write the blob in bounded memory and return its length in bytes.

    Raises:
        BlobFormatError: Arrays do not fit each other, or a neighbour is out of range or doubled.
        BadVectorsError: A number is beyond the form that vectors are stored in.
    """
    minor = stored_vectors.minor_of(stored)
    writer = ContainerWriter(out, KIND, minor=minor, by_ranges=True)
    write_sections(graph, writer, stored)
    return writer.finish()


def write_sections(graph: Graph, writer: ContainerWriter, stored: Stored = PLAIN) -> None:
    """Write the sections of a graph to a container that may hold others beside them."""
    head = _head(graph)
    shape = _Shape.of(head, KIND)
    _check_arrays(graph, shape)
    writer.put("head", head)
    writer.put("prop", strings.encode_mapping(graph.properties))
    if graph.codebook is not None and graph.codes is not None:
        writer.put("pqof", _subspace_offsets(graph, graph.codebook).astype("<u4"))
        writer.put("pqcb", graph.codebook.astype("<f4", copy=False))
        writer.put("pqco", graph.codes)
    if graph.max_degree:
        if graph.neighbours is None:
            raise BlobFormatError("graph: its neighbours are in packed nodes alone")
        blocks.write(writer, "adja", "adjt", _adjacency_blocks(graph, graph.neighbours))
    stored_vectors.put(writer, graph.vectors, stored)


def unpack(source: BinaryIO, directory: Path) -> None:
    """Turn a blob into memory-mappable files in an existing directory.

    Streams: memory is bounded by one block. If it raises, or the process dies, the directory lacks
    its manifest and `open` refuses it.

    Raises:
        BlobFormatError, ChecksumError, UnsupportedVersionError: The blob is not sound.
        OutputLimitError: It would unpack to over a hundred times its own size.
    """
    reader = ContainerReader(source, KIND)
    folder = mapped.Folder(directory)
    folder.finish(unpack_sections(reader, folder))


def unpack_sections(reader: ContainerReader, folder: mapped.Folder) -> dict[str, Any]:
    """Unpack what `write_sections` wrote and return the values for the folder's manifest."""
    head = reader.record("head", HEAD)
    shape = _Shape.of(head, reader.kind)
    if shape.unpacked_bytes > EXPANSION * reader.length + SMALL:
        raise OutputLimitError(
            f"{reader.kind} blob: {reader.length} bytes would unpack to {shape.unpacked_bytes}"
        )
    form = _form(reader, shape)
    if shape.subspaces:
        reader.expect("pqco", shape.rows * shape.subspaces)
    properties = strings.decode_mapping(reader.read("prop"), f"{reader.kind} blob, section prop")
    if shape.subspaces:
        _unpack_codes(reader, shape, folder)
    _unpack_adjacency(reader, shape, folder)
    if shape.has_vectors:
        stored_vectors.unpack(reader, folder, form, shape.rows, shape.dimension)
    return {
        "metric": shape.metric,
        "dimension": shape.dimension,
        "max_degree": shape.max_degree,
        "build_width": int(head["build_width"]),
        "alpha": float(head["alpha"]),
        "entry": shape.entry,
        "properties": properties,
    }


def _form(reader: ContainerReader, shape: "_Shape") -> Form:
    """Return the form of the vectors, their sections held to it; a graph has some, if any."""
    form = stored_vectors.form_of(reader)
    if form == "none" or (form != "float32" and not shape.has_vectors):
        raise BlobFormatError(f"{reader.kind} blob: a graph without its vectors")
    if shape.has_vectors:
        stored_vectors.expect(reader, form, shape.rows, shape.dimension)
    return form


def open(directory: Path) -> Graph:
    """Return an unpacked graph, its arrays memory-mapped read-only.

    Raises:
        LocalCopyError: The directory does not hold a whole unpacked graph of this version.
    """
    return from_arrays(*mapped.open_folder(directory))


def from_arrays(arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Graph:
    """Return the graph that an opened folder holds."""
    try:
        return Graph(
            metric=values["metric"],
            max_degree=values["max_degree"],
            build_width=values["build_width"],
            alpha=values["alpha"],
            entry=values["entry"],
            codebook=arrays.get("codebook"),
            codes=arrays.get("codes"),
            degrees=arrays["degrees"],
            neighbours=arrays.get("neighbours"),
            vectors=arrays.get("vectors"),
            dimension=values["dimension"],
            subspace_offsets=arrays.get("subspace_offsets"),
            properties=values["properties"],
        )
    except KeyError as error:
        raise LocalCopyError(f"unpacked shard has no {error}") from None


@dataclass(frozen=True)
class _Shape:
    """What the head says of the arrays, checked against what the format allows."""

    metric: str
    rows: int
    dimension: int
    max_degree: int
    entry: int
    block_nodes: int
    subspaces: int
    bits: int
    width: int
    has_vectors: bool

    @classmethod
    def of(cls, head: np.void | NDArray[Any], kind: str) -> "_Shape":
        where = f"{kind} blob"
        shape = cls(
            metric=metrics.name(int(head["metric"]), where),
            rows=int(head["rows"]),
            dimension=int(head["dimension"]),
            max_degree=int(head["max_degree"]),
            entry=int(head["entry"]),
            block_nodes=int(head["block_nodes"]),
            subspaces=int(head["pq_subspaces"]),
            bits=int(head["pq_bits"]),
            width=int(head["pq_width"]),
            has_vectors=bool(int(head["flags"]) & HAS_VECTORS),
        )
        problems = {
            f"{shape.rows} rows": shape.rows >= MAX_ROWS,
            f"dimension {shape.dimension}": not 0 < shape.dimension <= MAX_DIMENSION,
            f"maximum degree {shape.max_degree}": shape.max_degree > MAX_DEGREE,
            f"entry {shape.entry} of {shape.rows} rows": shape.entry >= max(shape.rows, 1),
            f"blocks of {shape.block_nodes} nodes": not 0 < shape.block_nodes <= MAX_BLOCK_NODES,
            f"alpha {head['alpha']}": not np.isfinite(head["alpha"]),
            "a product quantiser that cannot be": not shape._codes_can_be(),
            "neither graph nor vectors": not shape.max_degree and not shape.has_vectors,
        }
        for problem, there in problems.items():
            if there:
                raise BlobFormatError(f"{where}: {problem}")
        return shape

    def _codes_can_be(self) -> bool:
        if not self.subspaces:
            return not self.bits and not self.width
        room = metrics.search_dimension(self.metric, self.dimension)
        return self.subspaces <= room and 0 < self.width <= room and 1 <= self.bits <= 8

    @property
    def codewords(self) -> int:
        return 1 << self.bits

    @property
    def unpacked_bytes(self) -> int:
        per_row = 2 + 4 * self.max_degree + self.subspaces + 4 * self.dimension * self.has_vectors
        return self.rows * per_row + 4 * self.subspaces * self.codewords * self.width


def _head(graph: Graph) -> NDArray[Any]:
    head = np.zeros((), HEAD)
    head["rows"] = graph.rows
    head["dimension"] = graph.dimension
    head["metric"] = metrics.code(graph.metric)
    head["max_degree"] = graph.max_degree
    head["build_width"] = graph.build_width
    head["alpha"] = graph.alpha
    head["entry"] = graph.entry
    head["block_nodes"] = BLOCK_NODES
    if graph.codebook is not None:
        subspaces, codewords, width = graph.codebook.shape
        head["pq_subspaces"] = subspaces
        head["pq_bits"] = codewords.bit_length() - 1
        head["pq_width"] = width
    head["flags"] = HAS_VECTORS if graph.vectors is not None else 0
    return head


def _check_arrays(graph: Graph, shape: _Shape) -> None:
    expected = {
        "neighbours": (graph.neighbours, (shape.rows, shape.max_degree)),
        "vectors": (graph.vectors, (shape.rows, shape.dimension)),
        "codes": (graph.codes, (shape.rows, shape.subspaces)),
        "codebook": (graph.codebook, (shape.subspaces, shape.codewords, shape.width)),
    }
    if (graph.codes is None) != (graph.codebook is None):
        raise BlobFormatError("graph: codes and codebook come together or not at all")
    for name, (array, wanted) in expected.items():
        if array is not None and array.shape != wanted:
            raise BlobFormatError(f"graph: {name} has shape {array.shape}, not {wanted}")


def _subspace_offsets(graph: Graph, codebook: NDArray[np.float32]) -> NDArray[np.uint32]:
    subspaces, _, width = codebook.shape
    offsets = graph.subspace_offsets
    if offsets is None:
        offsets = np.arange(subspaces + 1, dtype=np.uint32) * np.uint32(width)
    _check_subspaces(offsets, graph.metric, graph.dimension, width, "graph")
    return offsets


def _check_subspaces(
    offsets: NDArray[np.uint32], metric: str, dimension: int, width: int, where: str
) -> None:
    widths = np.diff(offsets.astype(np.int64))
    ends = {dimension, metrics.search_dimension(metric, dimension)}
    if int(offsets[0]) or int(offsets[-1]) not in ends or widths.min() < 1 or widths.max() != width:
        raise BlobFormatError(
            f"{where}: sub-space offsets do not cut {dimension} dimensions into parts of at most "
            f"{width}"
        )


def _adjacency_blocks(graph: Graph, neighbours: NDArray[np.uint32]) -> Iterator[memoryview]:
    from puffin_ann.blobs.encoding import kernels

    out = np.empty(BLOCK_NODES * (3 + MAX_BYTES * graph.max_degree), np.uint8)
    for start in range(0, graph.rows, BLOCK_NODES):
        degrees = np.asarray(graph.degrees[start : start + BLOCK_NODES], np.uint16)
        lists = np.array(neighbours[start : start + BLOCK_NODES], np.uint32)
        beyond = np.arange(graph.max_degree, dtype=np.uint16)[None, :] >= degrees[:, None]
        lists[beyond] = 0xFFFFFFFF
        lists.sort(axis=1)
        used = kernels.put_adjacency(degrees, lists, graph.rows, out)
        if used < 0:
            raise BlobFormatError(f"graph: nodes from {start} on: {MESSAGES[used]}")
        yield out[:used].data


def _unpack_adjacency(reader: ContainerReader, shape: _Shape, folder: mapped.Folder) -> None:
    with (
        folder.array("degrees", "<u2", (shape.rows,)) as degrees_file,
        folder.array("neighbours", "<u4", (shape.rows, shape.max_degree)) as neighbours_file,
    ):
        if not shape.max_degree:
            for start in range(0, shape.rows, BLOCK_NODES):
                degrees_file.write(bytes(2 * min(BLOCK_NODES, shape.rows - start)))
            return
        for degrees, neighbours in _adjacency(reader, shape):
            degrees_file.write(degrees.data.cast("B"))
            neighbours_file.write(neighbours.data.cast("B"))


def _adjacency(
    reader: ContainerReader, shape: _Shape
) -> Iterator[tuple[NDArray[np.uint16], NDArray[np.uint32]]]:
    """Give `(b,)` degrees and `(b, R)` neighbours of each block, in buffers that are used again."""
    from puffin_ann.blobs.encoding import kernels

    largest = min(shape.block_nodes, shape.rows)
    degrees = np.empty(largest, np.uint16)
    neighbours = np.empty((largest, shape.max_degree), np.uint32)
    limit = largest * (3 + MAX_BYTES * shape.max_degree)
    left = shape.rows
    count = blocks.count(shape.rows, shape.block_nodes)
    for i, data in enumerate(blocks.read(reader, "adja", "adjt", count, limit)):
        size = min(left, shape.block_nodes)
        left -= size
        status = kernels.get_adjacency(data, shape.rows, degrees[:size], neighbours[:size])
        if status:
            raise BlobFormatError(
                f"{reader.kind} blob, section adja, block {i}: {MESSAGES[status]}"
            )
        yield degrees[:size], neighbours[:size]


def _unpack_codes(reader: ContainerReader, shape: _Shape, folder: mapped.Folder) -> None:
    where = f"{reader.kind} blob"
    offsets = reader.array("pqof", "<u4", (shape.subspaces + 1,))
    _check_subspaces(offsets, shape.metric, shape.dimension, shape.width, where)
    codebook = reader.array("pqcb", "<f4", (shape.subspaces, shape.codewords, shape.width))
    if not np.isfinite(codebook).all():
        raise BlobFormatError(f"{where}: a codeword is not finite")
    with folder.array("subspace_offsets", "<u4", offsets.shape) as file:
        file.write(offsets.tobytes())
    with folder.array("codebook", "<f4", codebook.shape) as file:
        file.write(codebook.tobytes())
    with folder.array("codes", "u1", (shape.rows, shape.subspaces)) as file:
        for piece in reader.pieces("pqco"):
            if np.frombuffer(piece, np.uint8).max() >= shape.codewords:
                raise BlobFormatError(f"{where}: a code has no codeword")
            file.write(piece)
