"""Build and extend HNSW graphs with hnswlib.

hnswlib measures by squared L2 (over unit vectors for cosine) or by inner product.
What it made is read off the file it saves, mapped: its bindings would copy the whole graph instead.
A graph to be extended goes the other way, through a file of the same form that is written here from
arrays that were checked; no byte of hnswlib's ever comes from outside.

Rows equal to an earlier one are not given to hnswlib. Thousands at distance 0 would fill each
other's lists, and leave no way out; they are hung below the first of them afterwards.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.memmap import new_array
from puffin_ann.ann.graph import kernels_connectivity
from puffin_ann.ann.graph.arguments import Adjacency, Space
from puffin_ann.ann.graph.kernels_connectivity import NONE_DELETED
from puffin_ann.ann.graph.primitives import MAX_ROWS
from puffin_ann.ann.hnsw import kernels
from puffin_ann.ann.hnsw.layers import Layers, empty, list_layers
from puffin_ann.errors import BadInputError
from puffin_ann.imports.extras import needing

HEADER = np.dtype(
    [
        ("level0_offset", "<u8"),
        ("max_elements", "<u8"),
        ("count", "<u8"),
        ("stride", "<u8"),
        ("label_offset", "<u8"),
        ("data_offset", "<u8"),
        ("top", "<i4"),
        ("entry", "<u4"),
        ("upper_links", "<u8"),
        ("level0_links", "<u8"),
        ("links", "<u8"),
        ("level_factor", "<f8"),
        ("ef_construction", "<u8"),
    ]
)
"""What hnswlib 0.8 writes first, on a machine of 64 bits and little-endian."""

SEEDS = (1 << 31) - 1
"""The generator of levels (minstd) counts modulo this, and takes seed 0 for 1."""

BLOCK_ROWS = 8192
HASHED_ROWS = 65_536
ARITY = 4
REPAIR_KEEP = 32

Progress = Callable[[float], None]


def build(
    space: NDArray[np.float32],
    *,
    product: bool,
    links: int,
    ef_construction: int,
    seed: int,
    threads: int,
    scratch: Path,
    progress: Progress | None = None,
) -> Layers:
    """Build the layers over rows.

    Args:
        space: `(n, w) float32`, read-only, as `vamana.space.of_rows` gives it.
        product: measure by inner product, not by distance.
        links: M.
        ef_construction: candidates kept for each row added.
        seed: of the levels.
        threads: with 1, the same rows and seed give the same graph; with more, rows that are added
            at the same time see each other or not as it happens.
        scratch: folder for hnswlib's file and the lists of layer 0, which stay mapped.
        progress: told the share of rows added.

    Raises:
        BadInputError: there are 2³¹ rows or more.
    """
    if len(space) >= MAX_ROWS:
        raise BadInputError(f"a shard of {len(space)} rows is too large; use more shards")
    if not len(space):
        return empty(links)
    first = _first_equal(space)
    different = np.flatnonzero(first == np.arange(len(space), dtype=np.uint32)).astype(np.uint32)
    with _index(space.shape[1], product) as index:
        index.init_index(
            max_elements=len(different),
            M=links,
            ef_construction=ef_construction,
            random_seed=1 + seed % (SEEDS - 1),
        )
        _add(index, space, different, threads, progress)
        native = _saved(index, scratch)
    layers = _read(native, len(space), different, links, scratch)
    native.unlink()
    return _finished(space, layers, first, 0)


def insert(
    space: NDArray[np.float32],
    layers: Layers,
    *,
    product: bool,
    deleted: NDArray[np.uint8] | None,
    ef_construction: int,
    threads: int,
    scratch: Path,
    progress: Progress | None = None,
) -> Layers:
    """Add rows to a graph; those that are there keep their numbers and their levels.

    Args:
        space: `(n + m, w) float32`: the rows of the graph, then the added ones.
        layers: of the first n; checked.
        product: as for `build`.
        deleted: `(n,) uint8`, non-zero for rows that no added row shall be linked to. Those in
            upper layers, one of M, are linked to all the same: without a single row to hold on
            to, hnswlib reads beyond a list.
        ef_construction: as for `build`.
        threads: as for `build`.
        scratch: as for `build`.
        progress: told the share of rows added.
    """
    known, links = len(layers.levels), layers.links
    if len(space) >= MAX_ROWS:
        raise BadInputError(f"a shard of {len(space)} rows is too large; use more shards")
    first = _first_equal(space)
    fresh = np.flatnonzero(first == np.arange(len(space), dtype=np.uint32)).astype(np.uint32)
    fresh = fresh[fresh >= known]
    native = scratch / "hnswlib.bin"
    _write(native, space, layers, ef_construction)
    with _index(space.shape[1], product) as index:
        index.load_index(str(native), max_elements=known + len(fresh))
        native.unlink()
        if deleted is not None:
            lonely = (deleted != 0) & (layers.levels == 0)
            lonely[layers.entry] = False
            for row in np.flatnonzero(lonely).tolist():
                index.mark_deleted(row)
        _add(index, space, fresh, threads, progress, known)
        native = _saved(index, scratch)
    rows = np.concatenate([np.arange(known, dtype=np.uint32), fresh])
    grown = _read(native, len(space), rows, links, scratch)
    native.unlink()
    return _finished(space, grown, first, known)


@contextlib.contextmanager
def _index(dim: int, product: bool) -> Iterator[Any]:
    with needing("hnsw", "to build or extend an index of 'algorithm: hnsw'"):
        import hnswlib

    yield hnswlib.Index(space="ip" if product else "l2", dim=dim)


def _add(
    index: Any,
    space: NDArray[np.float32],
    rows: NDArray[np.uint32],
    threads: int,
    progress: Progress | None,
    known: int = 0,
) -> None:
    for at in range(0, len(rows), BLOCK_ROWS):
        chosen = rows[at : at + BLOCK_ROWS]
        labels = np.arange(known + at, known + at + len(chosen))
        index.add_items(space[chosen], labels, num_threads=threads)
        if progress is not None:
            progress(min(1.0, (at + len(chosen)) / len(rows)))


def _saved(index: Any, scratch: Path) -> Path:
    path = scratch / "hnswlib.bin"
    index.save_index(str(path))
    return path


def _element(links: int, dim: int) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("degree", "<u2"),
            ("mark", "u1"),
            ("unused", "u1"),
            ("links", "<u4", (2 * links,)),
            ("vector", "<f4", (dim,)),
            ("label", "<u8"),
        ]
    )


def _read(path: Path, rows: int, numbers: NDArray[np.uint32], links: int, scratch: Path) -> Layers:
    """Return the layers of a file hnswlib saved, over all rows, those it knows by `numbers`.

    Args:
        path: what hnswlib saved.
        rows: rows in the shard; the lists of those hnswlib does not know are empty.
        numbers: `(e,) uint32`, ascending: the row each of hnswlib's elements stands for.
        links: M.
        scratch: the lists of layer 0 are mapped from a file here.
    """
    header = np.fromfile(path, HEADER, 1)[0]
    dim = (int(header["label_offset"]) - int(header["data_offset"])) // 4
    element = _element(links, dim)
    count = int(header["count"])
    if count != len(numbers) or int(header["stride"]) != element.itemsize:
        raise BadInputError("hnswlib wrote a file of another form; version 0.8 is needed")
    stored = np.memmap(path, element, "r", HEADER.itemsize, (count,))
    tail = np.memmap(path, "<u4", "r", HEADER.itemsize + count * element.itemsize)
    neighbours = new_array(scratch / "neighbours.npy", np.uint32, (rows, 2 * links))
    degrees = np.zeros(rows, np.uint16)
    for at in range(0, count, BLOCK_ROWS):
        block, here = stored[at : at + BLOCK_ROWS], numbers[at : at + BLOCK_ROWS]
        used = np.arange(2 * links)[None, :] < block["degree"][:, None]
        neighbours[here] = np.where(used, numbers[np.where(used, block["links"], 0)], 0)
        degrees[here] = block["degree"]
    known_levels = np.zeros(count, np.uint8)
    lists = kernels.tail_levels(np.asarray(tail), links, known_levels)
    if lists == kernels.BAD_TAIL:
        raise BadInputError("hnswlib wrote a file of another form; version 0.8 is needed")
    upper_degrees = np.zeros(lists, np.uint16)
    upper = np.zeros((lists, links), np.uint32)
    kernels.tail_lists(np.asarray(tail), known_levels, upper_degrees, upper)
    used = np.arange(links)[None, :] < upper_degrees[:, None]
    levels = np.zeros(rows, np.uint8)
    levels[numbers] = known_levels
    return Layers(
        neighbours=neighbours,
        degrees=degrees,
        levels=levels,
        upper_neighbours=np.where(used, numbers[upper], 0).astype(np.uint32),
        upper_degrees=upper_degrees,
        entry=int(numbers[int(header["entry"])]),
    )


def _write(path: Path, space: NDArray[np.float32], layers: Layers, ef_construction: int) -> None:
    """Write checked layers as hnswlib's file, each row an element labelled by its number."""
    rows, links = len(layers.levels), layers.links
    element = _element(links, space.shape[1])
    header = np.zeros(1, HEADER)
    header["max_elements"] = header["count"] = rows
    header["stride"] = element.itemsize
    header["data_offset"] = element.fields["vector"][1] if element.fields else 0
    header["label_offset"] = element.itemsize - 8
    header["top"], header["entry"] = layers.top, layers.entry
    header["upper_links"] = header["links"] = links
    header["level0_links"] = 2 * links
    header["level_factor"] = 1 / math.log(links)
    header["ef_construction"] = max(ef_construction, links)
    with path.open("wb") as out:
        out.write(header.tobytes())
        for at in range(0, rows, BLOCK_ROWS):
            part = slice(at, min(at + BLOCK_ROWS, rows))
            block = np.zeros(part.stop - at, element)
            block["degree"], block["links"] = layers.degrees[part], layers.neighbours[part]
            block["vector"], block["label"] = space[part], np.arange(at, part.stop)
            out.write(block.tobytes())
        out.write(_tail(layers).tobytes())


def _tail(layers: Layers) -> NDArray[np.uint32]:
    links = layers.links
    levels = layers.levels.astype(np.int64)
    words = levels * (links + 1)
    starts = np.cumsum(1 + words) - (1 + words)
    tail = np.zeros(int((1 + words).sum()), np.uint32)
    tail[starts] = 4 * words
    layer = list_layers(layers.levels).astype(np.int64)
    places = np.repeat(starts, levels) + 1 + (layer - 1) * (links + 1)
    tail[places] = layers.upper_degrees
    tail[places[:, None] + 1 + np.arange(links)] = layers.upper_neighbours
    return tail


def _first_equal(space: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Return `(n,) uint32`, for each row the lowest row equal to it, to the last bit."""
    words = space.view(np.uint32)
    hashes = np.empty(len(space), np.uint64)
    for at in range(0, len(space), HASHED_ROWS):
        kernels_connectivity.hash_rows(words[at : at + HASHED_ROWS], hashes[at : at + HASHED_ROWS])
    first = np.empty(len(space), np.uint32)
    kernels_connectivity.find_equal(words, hashes, np.argsort(hashes, kind="stable"), first)
    return first


def _finished(
    space: NDArray[np.float32], layers: Layers, first: NDArray[np.uint32], known: int
) -> Layers:
    """Hang rows equal to others below them, and let every row be reached from the entry.

    HNSW promises neither: lists that are full drop their longest edges, and what hung by one of
    them alone is lost to searches.
    """
    sizes = np.bincount(first, minlength=len(first))
    order = np.argsort(first, kind="stable").astype(np.uint32)
    ends = np.cumsum(sizes)
    arity = max(1, min(ARITY, layers.links - 1))
    for top in np.flatnonzero(sizes > 1):
        members = order[ends[top] - sizes[top] : ends[top]]
        if members[-1] >= known:
            own = layers.neighbours[top, : layers.degrees[top]]
            own = own[~np.isin(own, members)]
            layers.neighbours[top, : len(own)] = own
            layers.degrees[top] = len(own)
            kernels_connectivity.hang_equal(members, arity, layers.neighbours, layers.degrees)
    kernels_connectivity.make_reachable(
        Space(space.reshape(-1), space.shape[1]),
        Adjacency(layers.neighbours, layers.degrees, layers.entry),
        REPAIR_KEEP,
        NONE_DELETED,
    )
    return layers
