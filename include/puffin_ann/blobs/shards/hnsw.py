"""The HNSW blob: one shard's layers and its vectors.

Not hnswlib's own file: that one is trusted blindly by the library, holds nothing by which damage
would be seen, and is tied to a machine's word. Layer 0 is written as a graph blob writes its
adjacency, and so the upper layers, list by list. `unpack` checks every number, so that a search
kernel, and hnswlib where a shard is extended, may trust what they are given.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import blocks, mapped, metrics, stored_vectors, strings
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter, Sink
from puffin_ann.blobs.encoding.stored_vectors import PLAIN, Stored
from puffin_ann.blobs.encoding.varint_faults import MESSAGES
from puffin_ann.blobs.encoding.varints import MAX_BYTES
from puffin_ann.errors import BlobFormatError, LocalCopyError, OutputLimitError

KIND = "hnsw"
TYPE = "puffin-ann-hnsw-v1"

HEAD = np.dtype(
    [
        ("rows", "<u8"),
        ("dimension", "<u4"),
        ("metric", "<u4"),
        ("links", "<u4"),
        ("ef_construction", "<u4"),
        ("entry", "<u4"),
        ("top", "<u4"),
        ("upper_lists", "<u8"),
        ("block_lists", "<u4"),
        ("reserved", "<u4"),
    ]
)

BLOCK_LISTS = 4096
MAX_BLOCK_LISTS = 1 << 16
MAX_ROWS = 1 << 31
MAX_DIMENSION = 1 << 16
MIN_LINKS, MAX_LINKS = 2, 2048
MAX_TOP = 255

EXPANSION = 128
SMALL = 64 << 20
"""As for graph blobs: `unpack` writes at most so many times the blob's length, and so much more."""


@dataclass(frozen=True, eq=False)
class Hnsw:
    """A shard's HNSW graph; arrays may be memory-mapped.

    Attributes:
        metric: `"l2"`, `"cosine"` or `"ip"`.
        ef_construction: candidates kept by the build.
        entry: row of the highest level that a search begins at; 0 in an empty shard.
        neighbours: `(n, 2M) uint32`, lists of layer 0; each is ascending once it has been through
            the blob, and 0 beyond the degree. Order carries no meaning.
        degrees: `(n,) uint16`.
        levels: `(n,) uint8`, the highest layer each row is in.
        upper_neighbours: `(u, M) uint32`, for each row in order its lists of layers 1 to its level.
        upper_degrees: `(u,) uint16`.
        vectors: `(n, d) float32` as stored in the table.
        dimension: d.
        properties: free text: which builder, which seed.
    """

    metric: str
    ef_construction: int
    entry: int
    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.uint16]
    levels: NDArray[np.uint8]
    upper_neighbours: NDArray[np.uint32]
    upper_degrees: NDArray[np.uint16]
    vectors: NDArray[np.float32]
    dimension: int
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows n."""
        return len(self.degrees)

    @property
    def links(self) -> int:
        """M."""
        return int(self.upper_neighbours.shape[1])


def write(value: Hnsw, out: Sink, stored: Stored = PLAIN) -> int:
    """Write the blob in bounded memory and return its length in bytes.

    Raises:
        BlobFormatError: Arrays do not fit each other, or a neighbour is out of range or doubled.
        BadVectorsError: A number is beyond the form that vectors are stored in.
    """
    head = np.zeros((), HEAD)
    head["rows"], head["dimension"] = value.rows, value.dimension
    head["metric"], head["links"] = metrics.code(value.metric), value.links
    head["ef_construction"], head["entry"] = value.ef_construction, value.entry
    head["top"] = int(value.levels[value.entry]) if 0 <= value.entry < len(value.levels) else 0
    head["upper_lists"], head["block_lists"] = len(value.upper_degrees), BLOCK_LISTS
    shape = _Shape.of(head)
    _check_arrays(value, shape)
    _check_levels(value.levels, shape)
    minor = stored_vectors.minor_of(stored)
    writer = ContainerWriter(out, KIND, minor=minor, by_ranges=True)
    writer.put("head", head)
    writer.put("prop", strings.encode_mapping(value.properties))
    writer.put("levl", value.levels)
    blocks.write(
        writer, "adja", "adjt", _written(value.degrees, value.neighbours, shape.rows, "layer 0")
    )
    blocks.write(
        writer,
        "uppa",
        "uppt",
        _written(value.upper_degrees, value.upper_neighbours, shape.rows, "upper layers"),
    )
    stored_vectors.put(writer, value.vectors, stored)
    return writer.finish()


def unpack(source: BinaryIO, directory: Path) -> None:
    """Turn a blob into memory-mappable files in an existing directory.

    Streams: memory is bounded by a block and the levels. If it raises, or the process dies, the
    directory lacks its manifest and `open` refuses it.

    Raises:
        BlobFormatError, ChecksumError, UnsupportedVersionError: The blob is not sound.
        OutputLimitError: It would unpack to over a hundred times its own size.
    """
    reader = ContainerReader(source, KIND)
    head = reader.record("head", HEAD)
    shape = _Shape.of(head)
    if shape.unpacked_bytes > EXPANSION * reader.length + SMALL:
        raise OutputLimitError(
            f"{KIND} blob: {reader.length} bytes would unpack to {shape.unpacked_bytes}"
        )
    form = stored_vectors.form_of(reader)
    if form == "none":
        raise BlobFormatError(f"{KIND} blob: a graph without its vectors")
    stored_vectors.expect(reader, form, shape.rows, shape.dimension)
    properties = strings.decode_mapping(reader.read("prop"), f"{KIND} blob, section prop")
    levels = reader.array("levl", "u1", (shape.rows,))
    _check_levels(levels, shape)
    folder = mapped.Folder(directory)
    with folder.array("levels", "u1", (shape.rows,)) as file:
        file.write(levels.tobytes())
    _unpack_layer0(reader, shape, folder)
    _unpack_upper(reader, shape, levels, folder)
    stored_vectors.unpack(reader, folder, form, shape.rows, shape.dimension)
    folder.finish(
        {
            "metric": shape.metric,
            "dimension": shape.dimension,
            "ef_construction": int(head["ef_construction"]),
            "entry": shape.entry,
            "properties": properties,
        }
    )


def open(directory: Path) -> Hnsw:
    """Return an unpacked shard, its arrays memory-mapped read-only.

    Raises:
        LocalCopyError: The directory does not hold a whole unpacked shard of this version.
    """
    arrays, values = mapped.open_folder(directory)
    try:
        return Hnsw(
            metric=values["metric"],
            ef_construction=values["ef_construction"],
            entry=values["entry"],
            neighbours=arrays["neighbours"],
            degrees=arrays["degrees"],
            levels=arrays["levels"],
            upper_neighbours=arrays["upper_neighbours"],
            upper_degrees=arrays["upper_degrees"],
            vectors=arrays["vectors"],
            dimension=values["dimension"],
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
    links: int
    entry: int
    top: int
    upper_lists: int
    block_lists: int

    @classmethod
    def of(cls, head: np.void | NDArray[Any]) -> "_Shape":
        shape = cls(
            metric=metrics.name(int(head["metric"]), f"{KIND} blob"),
            rows=int(head["rows"]),
            dimension=int(head["dimension"]),
            links=int(head["links"]),
            entry=int(head["entry"]),
            top=int(head["top"]),
            upper_lists=int(head["upper_lists"]),
            block_lists=int(head["block_lists"]),
        )
        problems = {
            f"{shape.rows} rows": shape.rows >= MAX_ROWS,
            f"dimension {shape.dimension}": not 0 < shape.dimension <= MAX_DIMENSION,
            f"{shape.links} links": not MIN_LINKS <= shape.links <= MAX_LINKS,
            f"entry {shape.entry} of {shape.rows} rows": shape.entry >= max(shape.rows, 1),
            f"top layer {shape.top}": shape.top > MAX_TOP,
            f"{shape.upper_lists} upper lists": shape.upper_lists > shape.rows * shape.top,
            f"blocks of {shape.block_lists} lists": not 0 < shape.block_lists <= MAX_BLOCK_LISTS,
        }
        for problem, there in problems.items():
            if there:
                raise BlobFormatError(f"{KIND} blob: {problem}")
        return shape

    @property
    def unpacked_bytes(self) -> int:
        per_row = 3 + 8 * self.links + 4 * self.dimension
        return self.rows * per_row + self.upper_lists * (2 + 4 * self.links)


def _check_arrays(value: Hnsw, shape: _Shape) -> None:
    expected: dict[str, tuple[NDArray[Any], tuple[int, ...]]] = {
        "neighbours": (value.neighbours, (shape.rows, 2 * shape.links)),
        "levels": (value.levels, (shape.rows,)),
        "upper_neighbours": (value.upper_neighbours, (shape.upper_lists, shape.links)),
        "vectors": (value.vectors, (shape.rows, shape.dimension)),
    }
    for name, (array, wanted) in expected.items():
        if array.shape != wanted:
            raise BlobFormatError(f"hnsw: {name} has shape {array.shape}, not {wanted}")


def _check_levels(levels: NDArray[np.uint8], shape: _Shape) -> None:
    if int(levels.max(initial=0)) != shape.top or int(levels.sum(dtype=np.int64)) != (
        shape.upper_lists
    ):
        raise BlobFormatError(
            f"{KIND} blob: levels are not those of {shape.upper_lists} lists in {shape.top} layers"
        )
    if shape.rows and int(levels[shape.entry]) != shape.top:
        raise BlobFormatError(f"{KIND} blob: entry {shape.entry} is not in the top layer")


def _written(
    degrees: NDArray[np.uint16], lists: NDArray[np.uint32], rows: int, where: str
) -> Iterator[memoryview]:
    from puffin_ann.blobs.encoding import kernels

    most = lists.shape[1]
    out = np.empty(BLOCK_LISTS * (3 + MAX_BYTES * most), np.uint8)
    for start in range(0, len(degrees), BLOCK_LISTS):
        used = np.asarray(degrees[start : start + BLOCK_LISTS], np.uint16)
        lines = np.array(lists[start : start + BLOCK_LISTS], np.uint32)
        lines[np.arange(most, dtype=np.uint16)[None, :] >= used[:, None]] = 0xFFFFFFFF
        lines.sort(axis=1)
        length = kernels.put_adjacency(used, lines, rows, out)
        if length < 0:
            raise BlobFormatError(f"hnsw: {where}, lists from {start} on: {MESSAGES[length]}")
        yield out[:length].data


def _lists(
    reader: ContainerReader, sections: tuple[str, str], shape: _Shape, count: int, most: int
) -> Iterator[tuple[NDArray[np.uint16], NDArray[np.uint32]]]:
    """Give `(b,)` degrees and `(b, most)` lists of each block, in buffers that are used again."""
    from puffin_ann.blobs.encoding import kernels

    largest = min(shape.block_lists, count)
    degrees = np.empty(largest, np.uint16)
    lists = np.empty((largest, most), np.uint32)
    limit = largest * (3 + MAX_BYTES * most)
    left = count
    wanted = blocks.count(count, shape.block_lists)
    for i, data in enumerate(blocks.read(reader, *sections, wanted, limit)):
        size = min(left, shape.block_lists)
        left -= size
        status = kernels.get_adjacency(data, shape.rows, degrees[:size], lists[:size])
        if status:
            raise BlobFormatError(
                f"{KIND} blob, section {sections[0]}, block {i}: {MESSAGES[status]}"
            )
        yield degrees[:size], lists[:size]


def _unpack_layer0(reader: ContainerReader, shape: _Shape, folder: mapped.Folder) -> None:
    most = 2 * shape.links
    with (
        folder.array("degrees", "<u2", (shape.rows,)) as degrees_file,
        folder.array("neighbours", "<u4", (shape.rows, most)) as neighbours_file,
    ):
        for degrees, lists in _lists(reader, ("adja", "adjt"), shape, shape.rows, most):
            degrees_file.write(degrees.data.cast("B"))
            neighbours_file.write(lists.data.cast("B"))


def _unpack_upper(
    reader: ContainerReader, shape: _Shape, levels: NDArray[np.uint8], folder: mapped.Folder
) -> None:
    """Unpack the lists of upper layers; each leads to rows that are in its layer."""
    tall = levels[levels > 0].astype(np.int64)
    layers = np.arange(shape.upper_lists) - np.repeat(np.cumsum(tall) - tall, tall) + 1
    at = 0
    with (
        folder.array("upper_degrees", "<u2", (shape.upper_lists,)) as degrees_file,
        folder.array(
            "upper_neighbours", "<u4", (shape.upper_lists, shape.links)
        ) as neighbours_file,
    ):
        for degrees, lists in _lists(
            reader, ("uppa", "uppt"), shape, shape.upper_lists, shape.links
        ):
            used = np.arange(shape.links)[None, :] < degrees[:, None]
            if (used & (levels[lists] < layers[at : at + len(lists), None])).any():
                raise BlobFormatError(
                    f"{KIND} blob, section uppa: a list leads to a row that is not in its layer"
                )
            at += len(lists)
            degrees_file.write(degrees.data.cast("B"))
            neighbours_file.write(lists.data.cast("B"))
