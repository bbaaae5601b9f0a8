"""The lists as a search reads them, and the search."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering.product_quantisation import transpose_codebook
from puffin_ann.ann.core import blas
from puffin_ann.ann.core.known_masks import KnownMask
from puffin_ann.ann.core.lasting_masks import LastingMasks
from puffin_ann.ann.core.memmap import read_only
from puffin_ann.ann.core.metrics import METRICS, frozen
from puffin_ann.ann.core.types import Answers, Fields
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.exact.live_rows import LiveRows
from puffin_ann.ann.ivf import kernels
from puffin_ann.ann.ivf.kernels_lists import TILE
from puffin_ann.ann.ivf.lists import Lists, Trained, one_in_a_byte
from puffin_ann.ann.simd import fastscan

ALONE = 64
"""So many queries one thread answers sooner than several."""
PACKED_ROWS = 65_536

AMONG_DELETED = 4
"""So many times as much is done for a query whose nearest list has only deleted rows.

Of 12,000 rows of 96 numbers in 20 clusters, one of them deleted, a width of 32 found 0.64 and 0.86
of the nearest to queries in that one; so it finds 0.99 and all, in twice to three times the time.
"""
MOST = 2
"""Where not even one in so many rows may be answered, those may be elsewhere than rows are: each
query then has as many lists."""
REPAID = 0.5
"""Queries for each deleted row that repay lists without these: of 99,000 rows of GloVe, they take
0.03 s, and a query with 19 % deleted takes 2 to 8 µs less."""

_NONE = frozen(np.zeros(0, np.float32))
_NOT_CODED = read_only(np.zeros(0, np.uint8))
_NO_CANDIDATES = np.zeros((0, 0), np.int64)
_ALL = np.zeros(0, np.uint8)
_ALL.flags.writeable = False


class Searcher:
    """Searches lists; safe to use from several threads.

    Attributes:
        live_rows: what is known of masks.

    Args:
        trained: by which the lists were made.
        lists: the lists.
        vectors: `(n, d) float32`, read-only, by ordinal; `(0, d)` where they are not stored: then
            only `candidates` are known.
        inverse_norms: `(n,) float32`, for cosine; see `inverse_norms`.
        packed: `(blocks, groups, 64) uint8`, what `pack_codes` gave on a machine of this one's
            order; None makes it now.
        coded: `(n, stride) uint8`, what `code_rows` gave; None compares all candidates by their
            vectors.
        reach: `(lists,) float32`, what `measure_reach` gave; None looks through as many lists for
            each query.
    """

    def __init__(
        self,
        trained: Trained,
        lists: Lists,
        vectors: NDArray[np.float32],
        inverse_norms: NDArray[np.float32] | None = None,
        packed: NDArray[np.uint8] | None = None,
        coded: NDArray[np.uint8] | None = None,
        reach: NDArray[np.float32] | None = None,
    ) -> None:
        self._reach = reach
        self._metric = METRICS[trained.metric]
        self._filled = lists
        self._lists = kernels.InvertedLists(
            trained.relative,
            frozen(trained.origin),
            frozen(tile_centroids(trained.centroids, trained.dimension).reshape(-1)),
            len(trained.centroids),
            frozen(transpose_codebook(trained.codebook)),
            trained.offsets.astype(np.uint32),
            *_in_blocks(lists, len(trained.codebook), packed),
        )
        self._rows = kernels.StoredRows(
            self._metric.code,
            frozen(vectors),
            _NONE if inverse_norms is None else frozen(inverse_norms),
            read_only(_NOT_CODED if coded is None else coded).reshape(-1),
        )
        self._fields: tuple[Fields, Fields] = tuple(self._lists), tuple(self._rows)
        self.live_rows = LiveRows(self._metric, vectors)
        masks = self.live_rows.masks
        self._lasting: LastingMasks[Fields] = LastingMasks(
            len(lists.ordinals), self._past, masks, repaid=REPAID
        )

    @property
    def lists(self) -> int:
        """Number of lists."""
        return self._lists.lists

    @property
    def resident_bytes(self) -> int:
        """Bytes that searches touch, the vectors among them."""
        lists, rows = self._lists, self._rows
        arrays = (lists.centroids, lists.codes, lists.biases, lists.ordinals)
        beside = (rows.vectors, rows.inverse_norms, rows.coded)
        return sum(array.nbytes for array in (*arrays, *beside))

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        probes: int,
        refined: int,
        excluded: NDArray[np.uint8] | None = None,
        known: KnownMask | None = None,
        threads: int = 1,
    ) -> Answers:
        """Return min(k, rows that may be answered) near rows of each query, exact distances.

        Args:
            queries: `(q, d) float32`, C-contiguous.
            k: answers wanted.
            probes: lists to look through; more if they hold too few rows that may be answered.
            refined: candidates to measure exactly.
            excluded: `(n,) uint8`, non-zero for rows that may not be answered.
            known: what is known of that, if it was asked already.
            threads: threads to use; the answers do not depend on it.
        """
        ids = np.empty((len(queries), k), np.int64)
        distances = np.empty((len(queries), k), np.float32)
        queries = frozen(queries)
        mask, fields = _ALL, self._fields
        if excluded is not None:
            known = known or self.live_rows.masks.of(excluded)
            past = self._lasting.find(known, excluded, len(queries))
            if past is None:
                mask = _read_only(excluded)
            else:
                fields = past, self._fields[1]
        effort = self._effort(probes, refined, known)
        if threads == 1 or len(queries) <= ALONE:
            short = _run(fields, effort, queries, mask, ids, distances)
        else:

            def one(part: slice) -> int:
                found = ids[part], distances[part]
                return _run(fields, effort, queries[part], mask, *found)

            short = sum(blas.parallel(one, _parts(len(queries), threads), threads))
        if short:
            self._complete(queries, excluded, ids, distances, threads)
        return ids, distances

    def candidates(
        self,
        queries: NDArray[np.float32],
        *,
        probes: int,
        wanted: int,
        excluded: NDArray[np.uint8] | None = None,
        threads: int = 1,
    ) -> NDArray[np.int64]:
        """Return the rows of least scores of each query, `(q, wanted) int64`, in no order.

        There are fewer, and −1 behind them, only where fewer may be answered, or where numbers were
        too large for a score.

        Args:
            queries: `(q, d) float32`, C-contiguous.
            probes: lists to look through; more if they hold too few rows that may be answered.
            wanted: rows.
            excluded: `(n,) uint8`, non-zero for rows that may not be answered.
            threads: threads to use; the rows do not depend on it.
        """
        found = np.empty((len(queries), wanted), np.int64)
        queries = frozen(queries)
        mask, known = _ALL, None
        if excluded is not None:
            mask, known = _read_only(excluded), self.live_rows.masks.of(excluded)
        effort = (*self._effort(probes, wanted, known)[:-1], 1)
        nothing = np.empty((len(queries), 0), np.int64), np.empty((len(queries), 0), np.float32)

        def one(part: slice) -> None:
            kernels.search(*self._fields, effort, queries[part], mask, *nothing, found[part])

        list(blas.parallel(one, _parts(len(queries), threads), threads))
        return found

    def expect(self, excluded: NDArray[np.uint8]) -> None:
        """Make at once what many searches with a mask are quicker by."""
        self._lasting.make_now(excluded)

    def _effort(self, probes: int, refined: int, known: KnownMask | None) -> Fields:
        """Return the fields of `kernels.Effort`, by what is known of the mask."""
        probes = min(probes, self._lists.lists)
        # Else those that may be answered need not be where all rows are.
        are_nearly_all = known is None or known.live * MOST >= len(self._filled.ordinals)
        reach = math.inf
        if self._reach is not None and probes < self._lists.lists and are_nearly_all:
            reach = float(self._reach[probes - 1])
        are_some_deleted = known is not None and are_nearly_all
        return probes, reach, refined, AMONG_DELETED if are_some_deleted else 1

    def _past(self, excluded: NDArray[np.uint8]) -> Fields:
        """Return the lists without the rows that may not be answered."""
        lists = self._filled
        live = excluded[lists.ordinals] == 0
        starts = np.concatenate([[0], np.cumsum(live, dtype=np.int64)])[lists.starts]
        left = Lists(starts, lists.ordinals[live], lists.codes[live], lists.biases[live])
        codes, biases, ordinals, starts = _in_blocks(left, len(self._lists.words))
        return tuple(
            self._lists._replace(codes=codes, biases=biases, ordinals=ordinals, starts=starts)
        )

    def _complete(
        self,
        queries: NDArray[np.float32],
        excluded: NDArray[np.uint8] | None,
        ids: NDArray[np.int64],
        distances: NDArray[np.float32],
        threads: int,
    ) -> None:
        """Compare all rows with the queries that got fewer than k answers.

        There may be no more, or numbers were too large for a score.
        """
        lines = np.flatnonzero(ids[:, -1] < 0)
        allowed = None if excluded is None else excluded == 0
        ids[lines], distances[lines] = brute_force.search(
            queries[lines],
            self._rows.vectors,
            ids.shape[1],
            self._metric,
            allowed=allowed,
            threads=threads,
        )


def _run(
    fields: tuple[Fields, Fields],
    effort: Fields,
    queries: NDArray[np.float32],
    excluded: NDArray[np.uint8],
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
) -> int:
    short: int = kernels.search(*fields, effort, queries, excluded, ids, distances, _NO_CANDIDATES)
    return short


def _parts(queries: int, threads: int) -> list[slice]:
    """Return the parts of a batch that one thread takes at a time."""
    step = max(1, min(kernels.GROUPED, -(-queries // threads)))
    return [slice(at, at + step) for at in range(0, queries, step)]


def _in_blocks(
    lists: Lists, count: int, packed: NDArray[np.uint8] | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.uint32], NDArray[np.int64]]:
    """Return lists as they are scanned: codes, biases, ordinals and starts of `InvertedLists`.

    Args:
        lists: the lists.
        count: codes of each row.
        packed: what `pack_codes` gives; made here if it is None.
    """
    starts, places = block_starts(lists.starts)
    biases = np.full(int(starts[-1]) * fastscan.BLOCK, np.inf, np.float32)
    biases[places] = lists.biases
    ordinals = np.zeros(len(biases), np.uint32)
    ordinals[places] = lists.ordinals
    if packed is None:
        packed = np.concatenate(list(pack_codes(lists, count)))
    codes = np.ascontiguousarray(packed).view(np.ndarray).reshape(-1)
    codes.flags.writeable = False
    return codes, biases, ordinals, starts


def tile_centroids(centroids: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    """Return `(tiles, d + 1, 64) float32`: 64 centroids side by side, their squares at the end.

    Only the first d dimensions of a centroid are kept: a query has none beyond.
    """
    tiles = -(-len(centroids) // TILE)
    flat = np.zeros((tiles * TILE, dimension + 1), np.float32)
    flat[: len(centroids), :dimension] = centroids[:, :dimension]
    flat[:, dimension] = np.inf
    flat[: len(centroids), dimension] = np.einsum("ij,ij->i", centroids, centroids)
    return np.ascontiguousarray(flat.reshape(tiles, TILE, dimension + 1).transpose(0, 2, 1))


def first_blocks(starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `(lists + 1,)` first blocks of lists, of which the last is how many there are."""
    blocks = np.zeros(len(starts), np.int64)
    np.cumsum(-(-np.diff(starts) // fastscan.BLOCK), out=blocks[1:])
    return blocks


def block_starts(starts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return `(lists + 1,)` first blocks of lists, and `(n,)` the place each row gets in them."""
    blocks = first_blocks(starts)
    shift = np.repeat(blocks[:-1] * fastscan.BLOCK - starts[:-1], np.diff(starts))
    return blocks, np.arange(int(starts[-1])) + shift


def pack_codes(lists: Lists, count: int) -> Iterator[NDArray[np.uint8]]:
    """Give the codes in the order of this machine, `(blocks, groups, 64) uint8`, in pieces."""
    first = 0
    total = len(lists.starts) - 1
    while first < total:
        reach = int(np.searchsorted(lists.starts, lists.starts[first] + PACKED_ROWS, "right")) - 1
        last = min(max(reach, first + 1), total)
        begin, end = int(lists.starts[first]), int(lists.starts[last])
        blocks, places = block_starts(lists.starts[first : last + 1] - begin)
        codes = np.zeros((int(blocks[-1]) * fastscan.BLOCK, count), np.uint8)
        codes[places] = one_in_a_byte(lists.codes[begin:end], count)
        yield fastscan.pack(codes)
        first = last


def _read_only(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if mask.strides == (1,) and not mask.flags.writeable:
        return mask
    view = mask.view() if mask.strides == (1,) else mask.copy()
    view.setflags(write=False)
    return view


def inverse_norms(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return `(n,) float32`: 1 over the norm of each row, 0 for a zero row."""
    out = np.zeros(len(vectors), np.float32)
    for at in range(0, len(vectors), 16_384):
        block = np.asarray(vectors[at : at + 16_384])
        norms = np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64))
        there = norms > 0
        out[at : at + len(block)][there] = np.minimum(1 / norms[there], 3e38)
    return out
