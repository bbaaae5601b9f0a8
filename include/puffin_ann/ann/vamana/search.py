"""Search a graph: by a beam over full vectors, or over codes with the vectors measured at the end.

Scratch is kept from call to call, one set for each thread at work, so that a single query pays for
neither allocation nor clearing.
"""

import threading
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann import blas, exact, pq
from puffin_ann.ann.metrics import METRICS
from puffin_ann.ann.vamana import kernels_search as kernels
from puffin_ann.ann.vamana import space as spaces
from puffin_ann.ann.vamana.primitives import Whole

Beam = Literal["auto", "full", "pq"]
Scalar = TypeVar("Scalar", bound=np.generic)
Answers = tuple[NDArray[np.int64], NDArray[np.float32]]

FULL_BYTES = 1024
"""By default, rows of the space up to this size are read whole by the beam, larger ones by code."""
SPARE = 8
"""Candidates measured exactly beyond k: the beam's order is that of float32 sums."""
LARGEST_WIDENING = 8
EXHAUSTIVE_ROWS = 256
"""With so few live rows, all are compared."""

_NOBODY = np.empty(0, np.uint8)


@dataclass(frozen=True, eq=False)
class Codes:
    """Product-quantised rows.

    Attributes:
        codebook: `(m, 2**bits, w) float32`.
        offsets: `(m + 1,) uint32`, where each sub-space begins.
        codes: `(n, m) uint8`.

    """

    codebook: NDArray[np.float32]
    offsets: NDArray[np.uint32]
    codes: NDArray[np.uint8]


@dataclass(eq=False)
class _Scratch:
    stamps: NDArray[np.uint8]
    stamp: Whole = 0


class Searcher:
    """A graph with its vectors, ready to be searched by several threads at once.

    Args:
        metric: name.
        vectors: `(n, d) float32`, as stored.
        space: `(n, w) float32`, as `space.of_rows` gives it.
        neighbours: `(n, R) uint32`, every one below n; trusted.
        degrees: `(n,) uint16`, none above R; trusted.
        entry: row to begin at.
        codes: product-quantised rows, or None.
        zero_rows: `(z,) int64`, ascending: for cosine, the rows without a direction.
        beam: what the beam reads: whole rows, codes, or whichever should be faster.

    """

    def __init__(
        self,
        *,
        metric: str,
        vectors: NDArray[np.float32],
        space: NDArray[np.float32],
        neighbours: NDArray[np.uint32],
        degrees: NDArray[np.uint16],
        entry: int,
        codes: Codes | None = None,
        zero_rows: NDArray[np.int64] | None = None,
        beam: Beam = "auto",
    ) -> None:
        self._metric = METRICS[metric]
        self._vectors = _read_only(vectors)
        self._space = _read_only(space)
        self._neighbours = _read_only(neighbours)
        self._degrees = _read_only(degrees)
        self._entry = entry
        self._codes = codes
        self._words = None if codes is None else pq.turned(codes.codebook)
        self._zero_rows = np.empty(0, np.int64) if zero_rows is None else zero_rows
        self._by_code = codes is not None and _use_codes(beam, space.shape[1])
        self._free: list[_Scratch] = []
        self._lock = threading.Lock()

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        width: int,
        dead: NDArray[np.uint8] | None = None,
        threads: int = 1,
    ) -> Answers:
        """Return min(k, live rows) near rows of each query, by (exact distance, row).

        A query for which the graph gives fewer is answered by comparing all live rows.

        Args:
            queries: `(q, d) float32`, contiguous.
            k: answers wanted, at least 1.
            width: candidates kept; at least k are.
            dead: `(n,) uint8`, non-zero for rows not to be answered; None if all live.
            threads: threads to use.

        Returns:
            `(q, k) int64` rows, −1 where there is none, and `(q, k) float32`, infinite there.

        """
        rows = len(self._vectors)
        live = rows if dead is None else rows - int(np.count_nonzero(dead))
        if live <= max(k, EXHAUSTIVE_ROWS):
            return self.exhaustive(queries, k, dead=dead, threads=threads)
        keep = min(rows, max(k, width) * min(LARGEST_WIDENING, -(-rows // live)))
        ids = np.empty((len(queries), k), np.int64)
        distances = np.empty((len(queries), k), np.float32)
        counts = np.empty(len(queries), np.int64)
        moved = spaces.of_queries(queries, self._metric.name)
        mask = _NOBODY if dead is None else dead
        if threads <= 1 or len(queries) <= 1:
            self._run(slice(None), queries, moved, keep, mask, ids, distances, counts)
        else:
            step = -(-len(queries) // threads)
            parts = [slice(at, at + step) for at in range(0, len(queries), step)]
            for _ in blas.parallel(
                lambda part: self._run(part, queries, moved, keep, mask, ids, distances, counts),
                parts,
                threads,
            ):
                pass
        short = np.flatnonzero(counts < k)
        if len(short):
            ids[short], distances[short] = self.exhaustive(
                queries[short], k, dead=dead, threads=threads
            )
        if len(self._zero_rows):
            return self._with_zero_rows(ids, distances, dead)
        return ids, distances

    def exhaustive(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        dead: NDArray[np.uint8] | None = None,
        threads: int = 1,
    ) -> Answers:
        """Return the k nearest live rows of each query, exactly."""
        allowed = None if dead is None else dead == 0
        return exact.search(
            queries, self._vectors, k, self._metric, allowed=allowed, threads=threads
        )

    def _with_zero_rows(
        self,
        ids: NDArray[np.int64],
        distances: NDArray[np.float32],
        dead: NDArray[np.uint8] | None,
    ) -> Answers:
        """Merge answers with the rows that the space has no right place for: all at distance 1."""
        k = ids.shape[1]
        zeros = self._zero_rows if dead is None else self._zero_rows[dead[self._zero_rows] == 0]
        found = np.isin(ids, self._zero_rows)
        shape = (len(ids), min(k, len(zeros)))
        ids = np.concatenate([ids, np.broadcast_to(zeros[:k], shape)], axis=1)
        distances = np.concatenate(
            [np.where(found, np.float32(np.inf), distances), np.ones(shape, np.float32)], axis=1
        )
        order = np.lexsort((ids, distances))[:, :k]
        return np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)

    def _run(
        self,
        part: slice,
        queries: NDArray[np.float32],
        moved: NDArray[np.float32],
        keep: int,
        mask: NDArray[np.uint8],
        ids: NDArray[np.int64],
        distances: NDArray[np.float32],
        counts: NDArray[np.int64],
    ) -> None:
        scratch = self._take()
        common = (
            self._space.reshape(-1),
            self._space.shape[1],
            self._neighbours.reshape(-1),
            self._neighbours.shape[1],
            self._degrees,
            self._entry,
            moved[part].reshape(-1),
            self._metric.code,
            self._vectors,
            queries[part],
            keep,
            SPARE,
            mask,
            scratch.stamps,
            scratch.stamp,
            ids[part],
            distances[part],
            counts[part],
        )
        if self._by_code and self._codes is not None and self._words is not None:
            scratch.stamp = kernels.search_codes(
                self._words,
                self._codes.offsets,
                self._codes.codes.reshape(-1),
                self._metric.name == "ip",
                *common,
            )
        else:
            scratch.stamp = kernels.search_full(*common)
        with self._lock:
            self._free.append(scratch)

    def _take(self) -> _Scratch:
        with self._lock:
            if self._free:
                return self._free.pop()
        return _Scratch(np.zeros(len(self._vectors), np.uint8))


def _use_codes(beam: Beam, width: int) -> bool:
    if beam == "auto":
        return 4 * width > FULL_BYTES
    return beam == "pq"


def _read_only(array: NDArray[Scalar]) -> NDArray[Scalar]:
    view = np.ascontiguousarray(array).view(np.ndarray)
    view.flags.writeable = False
    return view
