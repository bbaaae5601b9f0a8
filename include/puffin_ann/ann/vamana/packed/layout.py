"""A graph as searches like it best: for each row a packed node, with codes of its neighbours.

A packed node holds how many neighbours its row has, and in blocks of 32 the neighbours: 1 or 2 bits
for each dimension of the edge that leads there, two factors that make a squared distance of them,
and the row's number. One expansion then reads the node, and the row, and looks at no neighbour's
own row; byte shuffles estimate 32 distances at once (SymphonyQG, Gou et al., SIGMOD
2025; the unbiased estimate by a correction for each edge is that of RaBitQ, Gao and Long, SIGMOD
2024).

For an edge r = x - c let u be its code's vector, and f = ‖r‖² / ⟨u, r⟩. Since f·u is r plus an
error that is perpendicular to r, and of random direction once everything was rotated,

    ‖q - x‖² ≈ ‖q - c‖² + [‖r‖² + 2f·⟨u, c⟩] - 2f·⟨u, q⟩

where the first term is measured when c is expanded, the bracket and 2f are stored, as the
upper halves of float32, and ⟨u, q⟩ is added up from tables of the query, a code of 4 bits for every
two or four dimensions.

Bytes and cache lines decide. The error shrinks with the root of the number of dimensions, and is
twice as large by 1 bit as by 2: so rows from `WIDE` numbers on have 1 bit, whose error there is
that of 2 bits at a quarter of the width. It takes estimates of a row from every neighbour expanded,
of which the least counts; if the first one stands, as it does by 2 bits, a third more rows must be
expanded. For the same reason rows have half as many neighbours as without packed nodes, see
`degree_of`: one block.

Narrow rows are read as they are stored: their distance is the same before they are rotated, and the
rows that are answered have been read by then. Wide ones are in their nodes, too, rotated, by codes
of 8 bits: an expansion reads a quarter of the bytes of a row, and only the rows that are answered,
and few more, are read as they are stored. What codes get wrong of a squared distance has a standard
deviation of 0.0005 of it (768 dimensions, the nearest 100 rows of a query); searches at the same
recall take a tenth to a quarter less time.

Packed nodes are made when a shard is unpacked, and mapped from its folder (see `packed_policy`).
They depend on the machine (`fastscan.ORDER`), so that they have no place in a blob. They are
written in large pieces, which Linux keeps, on file systems that can, in large pages: searches then
wait less for the addresses of pages.
"""

import math
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas
from puffin_ann.ann.core.memmap import LargeWrites, new_array, read_only
from puffin_ann.ann.graph.primitives import LANES
from puffin_ann.ann.graph.space import BLOCK_BYTES
from puffin_ann.ann.simd import fastscan
from puffin_ann.ann.vamana.packed import kernels_edges
from puffin_ann.ann.vamana.packed import kernels_pack as kernels
from puffin_ann.array_files import load_array

MADE_ROWS = 512
"""Packed nodes made by one thread at a time: they stay in its cache."""
BATCH_BYTES = 32 << 20
"""Packed nodes made before they are written."""

NARROWEST = 80
"""Numbers in a row of the space from which on it may have a packed node: see `packed_policy`."""
WIDE = 256
"""Numbers in a row from which on edges have 1 bit a dimension, and rows 8 in their nodes."""
LINE = 64
"""Bytes of a cache line."""

FORM = 4
"""To be raised when packed nodes or frames change: folders outlive a version of this package."""
PACKED = f"records-{FORM}-{fastscan.ORDER}.npy"
FRAME = f"frame-{FORM}-{fastscan.ORDER}.npy"
"""Files of a shard's folder; machines of another order leave each other's alone."""
ROTATED = "rotated.npy"
"""Of the folder that packed nodes are made in, and gone with it."""
ROTATED_BYTES = 64 << 20
"""So many bytes of rotated rows are kept in memory: a file takes as long to make as they do."""

ORIGIN_ROWS = 1024
EXTREME = 60
"""Rows longer than 2⁶⁰, or all of them shorter than 2⁻⁶⁰, have no packed nodes: squares of what
differs little among them, or the scale itself, would leave float32."""


def degree_of(declared: int, dim: int) -> int:
    """Return the largest out-degree of rows of `dim` numbers: half of what is declared if packed.

    It is no less than a block holds, unless less is declared. One block instead of two halves what
    packed nodes take, and searches of 138,146 × 128 and of 99,000 × 100 numbers take as long or up
    to a seventh less for it at recall@10 of 0.90 and 0.95; at 0.99 a fifteenth less and a sixth
    more.
    """
    return min(declared, max(fastscan.BLOCK, declared // 2)) if dim >= NARROWEST else declared


@dataclass(frozen=True)
class Layout:
    """Where things are in a packed node, in bytes; all of it in whole cache lines.

    Attributes:
        dim: numbers in a row.
        blocks: room for blocks of 32 neighbours.
    """

    dim: int
    blocks: int

    @classmethod
    def of(cls, dim: int, degrees: NDArray[np.uint16]) -> "Layout":
        """Return the layout that holds the longest list of neighbours."""
        return cls(dim, -(-int(degrees.max(initial=0)) // fastscan.BLOCK))

    @property
    def bits(self) -> int:
        """Bits of each dimension of an edge."""
        return 1 if self.dim >= WIDE else 2

    @property
    def row_bytes(self) -> int:
        """Codes of the row itself, before the blocks; 0 where rows are read as they are stored."""
        return -(-self.dim // LINE) * LINE if self.dim >= WIDE else 0

    @property
    def code_bytes(self) -> int:
        """Codes of a block; 32 sums, 32 factors and 32 row numbers follow them."""
        return self.dim * self.bits // LANES * fastscan.GROUP_BYTES

    @property
    def block_bytes(self) -> int:
        """Bytes of a block with all of these."""
        return self.code_bytes + kernels_edges.TAIL_BYTES

    @property
    def most(self) -> int:
        """Room for neighbours."""
        return self.blocks * fastscan.BLOCK

    @property
    def stride(self) -> int:
        """Bytes of a packed node."""
        return kernels.HEAD_BYTES + self.row_bytes + self.blocks * self.block_bytes


@dataclass(frozen=True, eq=False)
class Frame:
    """How rows of the space are brought into packed nodes: (x - origin) · scale, rotated.

    The origin, about the middle, takes away what all rows have in common, and a power of two brings
    all lengths below 1, so that no square leaves float32. The rotation is a Kronecker product: each
    row is taken as a matrix of 16 columns and multiplied from both sides. That is as good as a
    dense one (the same error of estimates) for a tenth of the work.

    Attributes:
        origin: `(w,) float32`.
        scale: a power of two.
        across: `(w / 16, w / 16) float32`, orthogonal.
        within: `(16, 16) float32`, orthogonal.
        longest: length of the longest row, before all this; for the inner product, of every one.
    """

    origin: NDArray[np.float32]
    scale: float
    across: NDArray[np.float32]
    within: NDArray[np.float32]
    longest: float

    @classmethod
    def of(cls, space: NDArray[np.float32]) -> "Frame | None":
        """Choose the frame of rows, `(n, w) float32`, n ≥ 1; None if they are of extreme length."""
        rows, dim = space.shape
        # A median, since a mean would lie wherever a single row of another scale says.
        chosen = np.linspace(0, rows - 1, min(rows, ORIGIN_ROWS)).astype(np.int64)
        origin = np.median(space[chosen], axis=0).astype(np.float32)
        longest = _longest(space)
        exponent = math.frexp(longest + float(np.linalg.norm(origin.astype(np.float64))))[1]
        if abs(exponent) > EXTREME:
            return None
        generator = np.random.default_rng(0)
        across, within = _orthogonal(generator, dim // LANES), _orthogonal(generator, LANES)
        return cls(origin, 2.0**-exponent, across, within, longest)

    def flat(self) -> NDArray[np.float64]:
        """Return all of it as one array; float64 holds any scale."""
        numbers = [self.scale, self.longest]
        parts = (self.origin, numbers, self.across.ravel(), self.within.ravel())
        return np.concatenate([np.asarray(part, np.float64) for part in parts])

    @classmethod
    def from_flat(cls, flat: NDArray[np.float64], dim: int) -> "Frame":
        """Return what `flat` was made of; `ValueError` if it is of other rows."""
        lanes = dim // LANES
        cuts = np.cumsum([dim, 2, lanes * lanes])
        if flat.shape != (cuts[-1] + LANES * LANES,):
            raise ValueError(f"a frame of {flat.shape} numbers for rows of {dim}")
        origin, (scale, longest), across, within = np.split(flat, cuts)
        return cls(
            origin.astype(np.float32),
            float(scale),
            across.astype(np.float32).reshape(lanes, lanes),
            within.astype(np.float32).reshape(LANES, LANES),
            float(longest),
        )


@dataclass(frozen=True, eq=False)
class PackedNodes:
    """All packed nodes of a shard.

    Attributes:
        layout: of each.
        frame: in which rows are.
        array: `(n, stride) uint8`; may be memory-mapped.
    """

    layout: Layout
    frame: Frame
    array: NDArray[np.uint8]


def make(
    vectors: NDArray[np.float32],
    space: NDArray[np.float32],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
    *,
    threads: int,
    folder: Path | None = None,
) -> PackedNodes | None:
    """Make the packed nodes of a graph; None if rows are too long or short for the sums.

    Args:
        vectors: `(n, d) float32`, n ≥ 1, as stored.
        space: `(n, w) float32`, w a multiple of 16: the same as they are searched.
        neighbours: `(n, R) uint32`, every one below n; trusted.
        degrees: `(n,) uint16`, none above R; trusted.
        threads: threads to use; the packed nodes do not depend on it.
        folder: where to write them, for `open_packed`; they are kept in memory if it is None.
    """
    rows, dim = space.shape
    layout, frame = Layout.of(dim, degrees), Frame.of(space)
    if frame is None:
        return None
    rotated = _rotated(space, frame, threads, folder)
    vectors, space, neighbours, degrees = (
        read_only(vectors), read_only(space), read_only(neighbours), read_only(degrees)
    )  # fmt: skip

    def make_batch(begin: int, batch: NDArray[np.uint8]) -> None:
        def make_from(at: int) -> None:
            last = min(at + MADE_ROWS, begin + len(batch))
            flat = batch[at - begin : last - begin].reshape(-1)
            flat[:] = 0
            if layout.row_bytes:
                kernels.write_coded_rows(rotated, dim, degrees, at, last, flat, layout.stride)
            else:
                stored = vectors[at:last], space[at:last]
                kernels.write_heads(*stored, frame.scale, degrees[at:last], flat, layout.stride)
            kernels_edges.write_edges(
                rotated, dim, layout.bits, neighbours, degrees, at, last, flat, layout.stride,
                kernels.HEAD_BYTES + layout.row_bytes,
            )  # fmt: skip

        for _ in blas.parallel(make_from, range(begin, begin + len(batch), MADE_ROWS), threads):
            pass

    if folder is None:
        array = np.empty((rows, layout.stride), np.uint8)
        make_batch(0, array)
        return PackedNodes(layout, frame, array)
    # Filled again and again: memory that a process has not touched before takes long to be given.
    room = np.empty(
        (min(rows, max(MADE_ROWS, BATCH_BYTES // layout.stride)), layout.stride), np.uint8
    )
    shape = (rows, layout.stride)
    with LargeWrites(folder / PACKED, np.uint8, shape, threads=threads) as file:
        for begin in range(0, rows, len(room)):
            batch = room[: rows - begin]
            make_batch(begin, batch)
            file.write(batch)
    np.save(folder / FRAME, frame.flat())
    return open_packed(folder, dim, degrees)


def make_beside(
    vectors: NDArray[np.float32],
    space: NDArray[np.float32],
    neighbours: NDArray[np.uint32],
    degrees: NDArray[np.uint16],
    folder: Path | None,
) -> PackedNodes | None:
    """Make packed nodes for this process alone, by one thread; None without room for them.

    They are mapped from a file of the folder that has no name any more, so that they end with the
    process, and memory is asked for them only as it is free; see `make` for the other arguments.
    """
    if folder is None:
        return make(vectors, space, neighbours, degrees, threads=1)
    needed = len(space) * Layout.of(space.shape[1], degrees).stride
    if shutil.disk_usage(folder).free < 2 * needed:
        return None
    with tempfile.TemporaryDirectory(prefix="records-", dir=folder) as work:
        return make(vectors, space, neighbours, degrees, threads=1, folder=Path(work))


def _rotated(
    space: NDArray[np.float32], frame: Frame, threads: int, folder: Path | None
) -> NDArray[np.float32]:
    """Return rows in the frame, flat `(n · w,) float32`; many of them are in a file."""
    rows, dim = space.shape
    out: NDArray[np.float32]
    if folder is None or space.nbytes <= ROTATED_BYTES:
        out = np.empty(rows * dim, np.float32)
    else:
        out = new_array(folder / ROTATED, np.float32, (rows * dim,)).view(np.ndarray)

    def rows_from(at: int) -> None:
        kernels.rotate_rows(
            read_only(space[at : at + MADE_ROWS]),
            frame.origin,
            np.float32(frame.scale),
            frame.across,
            frame.within,
            out,
            at * dim,
        )

    for _ in blas.parallel(rows_from, range(0, rows, MADE_ROWS), threads):
        pass
    return read_only(out)


def open_packed(folder: Path, dim: int, degrees: NDArray[np.uint16]) -> PackedNodes | None:
    """Map the packed nodes that `make` wrote; None if `refuse` was called for them.

    Raises:
        FileNotFoundError: they were not made, or not by a machine like this.
        ValueError, OSError: they are not those of such a graph.
    """
    flat = load_array(folder / FRAME)
    if not len(flat):
        return None
    layout, frame = Layout.of(dim, degrees), Frame.from_flat(flat, dim)
    array = load_array(folder / PACKED, mapped=True)
    if array.dtype != np.uint8 or array.shape != (len(degrees), layout.stride):
        raise ValueError(f"records of shape {array.shape} and type {array.dtype}")
    return PackedNodes(layout, frame, array.view(np.ndarray))


def refuse(folder: Path) -> None:
    """Note that a shard is to have no packed nodes."""
    np.save(folder / FRAME, np.empty(0))


def _longest(space: NDArray[np.float32]) -> float:
    """Return the length of the longest row."""
    step = max(1, BLOCK_BYTES // (4 * space.shape[1]))
    squares = (
        np.einsum("ij,ij->i", block, block, dtype=np.float64).max()
        for block in (space[at : at + step] for at in range(0, len(space), step))
    )
    return math.sqrt(max(squares))


def _orthogonal(generator: np.random.Generator, size: int) -> NDArray[np.float32]:
    found = np.linalg.qr(generator.standard_normal((size, size)))[0]
    return np.ascontiguousarray(found, np.float32)
