"""The inverted-lists blob: one shard's centroids, lists of 4-bit codes, and vectors.

Codes, ordinals and biases are stored list after list, so that the rows of a list are one range of
each. Vectors are stored by ordinal, as in every other blob of a shard.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import mapped, metrics, stored_vectors, strings
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter, Sink
from puffin_ann.blobs.encoding.stored_vectors import PLAIN, Form, Stored
from puffin_ann.errors import BlobFormatError, LocalCopyError

KIND = "ivfl"
TYPE = "puffin-ann-ivf-v1"

HEAD = np.dtype(
    [
        ("rows", "<u8"),
        ("dimension", "<u4"),
        ("metric", "<u4"),
        ("lists", "<u4"),
        ("pq_subspaces", "<u4"),
        ("pq_bits", "<u4"),
        ("pq_width", "<u4"),
        ("scale", "<f8"),
        ("flags", "<u4"),
        ("reserved", "<u4"),
    ]
)

RELATIVE = 1
BITS = 4
WORDS = 1 << BITS
MAX_ROWS = 1 << 32
MAX_DIMENSION = 1 << 16
MAX_LISTS = 1 << 24


@dataclass(frozen=True, eq=False)
class Ivf:
    """A shard's lists; arrays may be memory-mapped. All but `vectors` are None without lists.

    A shard has lists or vectors, or both.

    Attributes:
        metric: `"l2"`, `"cosine"` or `"ip"`.
        vectors: `(n, d) float32` as stored in the table, or rounded, by ordinal; None if the shard
            has none.
        relative: biases are for queries relative to each centroid.
        scale: what `ip` vectors are multiplied by before they are compared with centroids.
        origin: `(d,) float32`, what `l2` vectors are taken relative to.
        centroids: `(lists, d) float32`, for `ip` `(lists, d + 1)`.
        subspace_offsets: `(m + 1,) uint32`, where each sub-space begins; from 0 to d.
        codebook: `(m, 16, w) float32`; sub-space j uses the first `offsets[j + 1] - offsets[j]`
            of the w columns, the rest is 0.
        starts: `(lists + 1,) int64`, the first row of each list, from 0 to n.
        ordinals: `(n,) uint32`, of the rows in the order of the lists.
        codes: `(n, ⌈m / 2⌉) uint8`, in the same order; codes 2i and 2i + 1 of a row are the low
            and the high half of byte i.
        biases: `(n,) float32`, in the same order.
        properties: free text: which builder, which seed.
    """

    metric: str
    vectors: NDArray[np.float32] | None
    relative: bool = False
    scale: float = 1.0
    origin: NDArray[np.float32] | None = None
    centroids: NDArray[np.float32] | None = None
    subspace_offsets: NDArray[np.uint32] | None = None
    codebook: NDArray[np.float32] | None = None
    starts: NDArray[np.int64] | None = None
    ordinals: NDArray[np.uint32] | None = None
    codes: NDArray[np.uint8] | None = None
    biases: NDArray[np.float32] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows n."""
        if self.vectors is not None:
            return len(self.vectors)
        return 0 if self.ordinals is None else len(self.ordinals)

    @property
    def dimension(self) -> int:
        """Numbers d in a vector."""
        if self.vectors is not None:
            return int(self.vectors.shape[1])
        return 0 if self.origin is None else len(self.origin)

    @property
    def has_lists(self) -> bool:
        """Tell if there are lists; without them every row is compared."""
        return self.centroids is not None


def write(ivf: Ivf, out: Sink, stored: Stored = PLAIN) -> int:
    """Write the blob in bounded memory and return its length in bytes.

    Raises:
        BlobFormatError: Arrays do not fit each other, or there is nothing to find rows by.
        BadVectorsError: A number is beyond the form that vectors are stored in.
    """
    head = _head(ivf)
    shape = Shape.of(head, KIND)
    _check_vectors(ivf, shape, stored.form)
    minor = stored_vectors.minor_of(stored)
    writer = ContainerWriter(out, KIND, minor=minor, by_ranges=True)
    writer.put("head", head)
    writer.put("prop", strings.encode_mapping(ivf.properties))
    for section, name, dtype, wanted in shape.arrays():
        array: NDArray[Any] | None = getattr(ivf, name)
        if array is None or array.shape != wanted:
            there = None if array is None else array.shape
            raise BlobFormatError(f"lists: {name} has shape {there}, not {wanted}")
        writer.put(section, array.astype(dtype, copy=False))
    stored_vectors.put(writer, ivf.vectors, stored)
    return writer.finish()


def unpack(source: BinaryIO, directory: Path) -> None:
    """Turn a blob into memory-mappable files in an existing directory.

    Streams the vectors and codes; ordinals, starts and centroids are looked at whole. If it raises,
    or the process dies, the directory lacks its manifest and `open` refuses it.

    Raises:
        BlobFormatError, ChecksumError, UnsupportedVersionError: The blob is not sound.
    """
    reader = ContainerReader(source, KIND)
    head = reader.record("head", HEAD)
    shape = Shape.of(head, KIND)
    for section, _, dtype, wanted in shape.arrays():
        reader.expect(section, np.dtype(dtype).itemsize * _product(wanted))
    form = stored_vectors.form_of(reader)
    if form == "none" and not shape.lists:
        raise BlobFormatError(f"{KIND} blob: neither lists nor vectors")
    stored_vectors.expect(reader, form, shape.rows, shape.dimension)
    properties = strings.decode_mapping(reader.read("prop"), f"{KIND} blob, section prop")
    folder = mapped.Folder(directory)
    if shape.lists:
        check_starts(reader.array("lsta", "<i8", (shape.lists + 1,)), shape.rows)
        _check_ordinals(reader, shape.rows)
        check_codebook(reader, shape)
    for section, name, dtype, wanted in shape.arrays():
        with folder.array(name, dtype, wanted) as file:
            for piece in reader.pieces(section):
                if dtype == "<f4" and not np.isfinite(np.frombuffer(piece, "<f4")).all():
                    raise BlobFormatError(f"{KIND} blob, section {section}: not all is finite")
                file.write(piece)
    stored_vectors.unpack(reader, folder, form, shape.rows, shape.dimension)
    folder.finish(
        {
            "metric": shape.metric,
            "relative": bool(int(head["flags"]) & RELATIVE),
            "scale": float(head["scale"]),
            "properties": properties,
        }
    )


def open(directory: Path) -> Ivf:
    """Return an unpacked shard, its arrays memory-mapped read-only.

    Raises:
        LocalCopyError: The directory does not hold a whole unpacked shard of this kind.
    """
    arrays, values = mapped.open_folder(directory)
    fields: dict[str, Any] = {"vectors": None, **values, **arrays}
    for beside in ("errors", "scales"):
        fields.pop(beside, None)
    try:
        return Ivf(**fields)
    except TypeError as error:
        raise LocalCopyError(f"{directory} holds no unpacked lists: {error}") from None


@dataclass(frozen=True)
class Shape:
    """What the head says of the arrays, checked against what the format allows."""

    metric: str
    rows: int
    dimension: int
    lists: int
    subspaces: int
    bits: int
    width: int

    @classmethod
    def of(cls, head: np.void | NDArray[Any], kind: str) -> "Shape":
        """Return what a head says; `BlobFormatError` where that cannot be."""
        where = f"{kind} blob"
        shape = cls(
            metric=metrics.name(int(head["metric"]), where),
            rows=int(head["rows"]),
            dimension=int(head["dimension"]),
            lists=int(head["lists"]),
            subspaces=int(head["pq_subspaces"]),
            bits=int(head["pq_bits"]),
            width=int(head["pq_width"]),
        )
        scale = float(head["scale"])
        problems = {
            f"{shape.rows} rows": shape.rows >= MAX_ROWS,
            f"dimension {shape.dimension}": not 0 < shape.dimension <= MAX_DIMENSION,
            f"{shape.lists} lists": shape.lists > MAX_LISTS,
            f"scale {scale}": not (np.isfinite(scale) and scale > 0),
            "codes that cannot be": not shape._codes_can_be(),
        }
        for problem, there in problems.items():
            if there:
                raise BlobFormatError(f"{where}: {problem}")
        return shape

    def _codes_can_be(self) -> bool:
        if not self.lists:
            return not self.subspaces and not self.bits and not self.width
        fits = 0 < self.subspaces <= self.dimension and 0 < self.width <= self.dimension
        return fits and self.bits == BITS

    def arrays(self) -> list[tuple[str, str, str, tuple[int, ...]]]:
        """Return section, attribute, dtype and shape of every array but the vectors."""
        if not self.lists:
            return []
        wide = metrics.search_dimension(self.metric, self.dimension)
        return [
            ("orig", "origin", "<f4", (self.dimension,)),
            ("cent", "centroids", "<f4", (self.lists, wide)),
            ("pqof", "subspace_offsets", "<u4", (self.subspaces + 1,)),
            ("pqcb", "codebook", "<f4", (self.subspaces, WORDS, self.width)),
            ("lsta", "starts", "<i8", (self.lists + 1,)),
            ("ordi", "ordinals", "<u4", (self.rows,)),
            ("code", "codes", "|u1", (self.rows, -(-self.subspaces // 2))),
            ("bias", "biases", "<f4", (self.rows,)),
        ]


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for extent in shape:
        product *= extent
    return product


def _head(ivf: Ivf) -> NDArray[Any]:
    head = np.zeros((), HEAD)
    head["rows"] = ivf.rows
    head["dimension"] = ivf.dimension
    head["metric"] = metrics.code(ivf.metric)
    head["scale"] = ivf.scale
    head["flags"] = RELATIVE if ivf.relative else 0
    if ivf.centroids is not None and ivf.codebook is not None:
        head["lists"] = len(ivf.centroids)
        head["pq_subspaces"], _, head["pq_width"] = ivf.codebook.shape
        head["pq_bits"] = BITS
    return head


def _check_vectors(ivf: Ivf, shape: Shape, form: Form) -> None:
    """Refuse a shard without what it is to have: its vectors, or lists where it has none."""
    if form == "none":
        if not shape.lists:
            raise BlobFormatError("lists: neither lists nor vectors")
    elif ivf.vectors is None or ivf.vectors.shape != (shape.rows, shape.dimension):
        there = None if ivf.vectors is None else ivf.vectors.shape
        raise BlobFormatError(
            f"lists: vectors has shape {there}, not {(shape.rows, shape.dimension)}"
        )


def check_starts(starts: NDArray[np.int64], rows: int) -> None:
    """Refuse lists that do not cut the rows into ranges."""
    if starts[0] != 0 or starts[-1] != rows or (starts[1:] < starts[:-1]).any():
        raise BlobFormatError(f"{KIND} blob: lists do not cut {rows} rows into ranges")


def _check_ordinals(reader: ContainerReader, rows: int) -> None:
    """Refuse ordinals that are not each row once."""
    seen = np.zeros(rows, np.bool_)
    for piece in reader.pieces("ordi"):
        ordinals = np.frombuffer(piece, "<u4")
        if ordinals.max() >= rows:
            raise BlobFormatError(f"{KIND} blob: an ordinal is not below {rows}")
        seen[ordinals] = True
    if not seen.all():
        raise BlobFormatError(f"{KIND} blob: a row is in no list, and another in two")


def check_codebook(reader: ContainerReader, shape: Shape) -> None:
    """Refuse sub-spaces that are not all dimensions, each in one, and codewords beyond theirs."""
    offsets = reader.array("pqof", "<u4", (shape.subspaces + 1,)).astype(np.int64)
    widths = np.diff(offsets)
    ends = int(offsets[0]), int(offsets[-1])
    if ends != (0, shape.dimension) or widths.min() < 1 or widths.max() != shape.width:
        raise BlobFormatError(
            f"{KIND} blob: sub-space offsets do not cut {shape.dimension} dimensions into parts of "
            f"at most {shape.width}"
        )
    codebook = reader.array("pqcb", "<f4", (shape.subspaces, WORDS, shape.width))
    beyond = np.arange(shape.width) >= widths[:, None]
    if codebook.transpose(0, 2, 1)[beyond].any():
        raise BlobFormatError(f"{KIND} blob: a codeword goes beyond its sub-space")
