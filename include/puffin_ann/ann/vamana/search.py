"""Search a graph: by a beam over packed nodes, over full vectors, or over product-quantised codes.

Whichever it is, the distances of the answers are measured on the rows as they are stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.clustering import product_quantisation
from puffin_ann.ann.core.memmap import read_only
from puffin_ann.ann.core.types import Answers, Fields, Width
from puffin_ann.ann.graph import hollows
from puffin_ann.ann.graph import space as spaces
from puffin_ann.ann.graph.arguments import Adjacency, QueryBatch, Space
from puffin_ann.ann.graph.live_lists import Effort, Past, choose, to_fields
from puffin_ann.ann.graph.primitives import Whole
from puffin_ann.ann.graph.searcher import Answering, Run
from puffin_ann.ann.vamana import kernels_search as kernels
from puffin_ann.ann.vamana.alone import Alone
from puffin_ann.ann.vamana.packed import layout as layouts
from puffin_ann.ann.vamana.packed.kernels_search import NO_SIEVE, NO_SIGHT, search_packed
from puffin_ann.ann.vamana.packed.kernels_tables import PackedGraph
from puffin_ann.ann.vamana.packed.layout import PackedNodes
from puffin_ann.ann.vamana.packed.neighbours import neighbours_in

Beam = Literal["auto", "full", "pq", "edges"]
Chosen = Literal["full", "pq", "edges"]

FULL_BYTES = 1024
"""Without packed nodes, rows of the space up to this size are read whole by the beam, larger
ones by code."""
PAST = Effort(near=16, taken=8, rounds=1, alpha=1.2)
"""How lists that lead past deleted rows are chosen; see `graph.live_lists`."""
EXPANSIONS: Mapping[Chosen, int] = {"edges": 40, "pq": 100, "full": 50}
"""Rows compared one by one in the time that a candidate takes which is kept, see `Answering`.
Measured at 100 and 384 dimensions."""


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


def choose_beam(beam: Beam, dim: int, *, codes: bool, packed: bool) -> Chosen:
    """Return what a beam reads: what was asked for, if it is there.

    Left to choose, it is packed nodes wherever there are some, as `packed_policy` has found.

    Args:
        beam: what was asked for.
        dim: numbers in a row of the space.
        codes: whether there are any.
        packed: whether there are packed nodes.
    """
    if packed and beam in ("auto", "edges"):
        return "edges"
    if codes and (beam == "pq" or (beam != "full" and 4 * dim > FULL_BYTES)):
        return "pq"
    return "full"


@dataclass(frozen=True, eq=False)
class Linked:
    """A graph with its rows.

    Attributes:
        metric: name.
        vectors: `(n, d) float32`, as stored.
        space: `(n, w) float32`, as `space.of_rows` gives it; None where packed nodes do instead.
        neighbours: `(n, R) uint32`, every one below n; trusted; None where they are in packed nodes
            alone.
        degrees: `(n,) uint16`, none above R; trusted.
        max_degree: R.
        entry: row to begin at.
    """

    metric: str
    vectors: NDArray[np.float32]
    space: NDArray[np.float32] | None
    neighbours: NDArray[np.uint32] | None
    degrees: NDArray[np.uint16]
    max_degree: int
    entry: int


@dataclass(frozen=True, eq=False)
class LinkedInSpace(Linked):
    """A graph with its rows, which can be searched without packed nodes."""

    space: NDArray[np.float32]
    neighbours: NDArray[np.uint32]


class Searcher:
    """A graph, ready to be searched by several threads at once.

    Attributes:
        beam: what the beam reads.
        answering: completes its answers.
        packed_graph: where the beam reads packed nodes.

    Args:
        linked: the graph.
        codes: product-quantised rows, or None.
        packed: of this graph, or None; what is in them need not be trusted.
        zero_rows: `(z,) int64`, ascending: for cosine, the rows without a direction.
        beam: what the beam reads, see `choose_beam`.
        folder: of the shard, with room for more packed nodes; None if they are kept in memory.
    """

    def __init__(
        self,
        linked: Linked,
        *,
        codes: Codes | None = None,
        packed: PackedNodes | None = None,
        zero_rows: NDArray[np.int64] | None = None,
        beam: Beam = "auto",
        folder: Path | None = None,
    ) -> None:
        dim = spaces.padded_dim(linked.metric, linked.vectors.shape[1])
        self.beam = choose_beam(beam, dim, codes=codes is not None, packed=packed is not None)
        self.answering = Answering(
            linked.metric,
            linked.vectors,
            zero_rows,
            expansion=EXPANSIONS[self.beam],
            past=self._past,
        )
        self._linked, self._nodes, self._folder = linked, packed, folder
        self._alone: Alone | None = None
        if self.beam == "edges" and packed is not None:
            self._run: Run = self._search_packed
            self.packed_graph = self._graph_of(packed)
            self._packed: Fields = tuple(self.packed_graph)
            if zero_rows is None or not len(zero_rows):
                self._alone = Alone(self.answering, self.packed_graph)
            return
        if linked.space is None or linked.neighbours is None:
            raise ValueError("without packed nodes, rows as they are searched and links are needed")
        self._space: Fields = tuple(_to_space(linked.space))
        first = linked.space[:1].astype(np.float64)
        self._length = float(np.linalg.norm(first))
        self._graph = to_fields(Adjacency(linked.neighbours, linked.degrees, linked.entry))
        self._run = self._search_full
        if self.beam == "pq" and codes is not None:
            codewords = kernels.Codewords(
                product_quantisation.transpose_codebook(codes.codebook),
                codes.offsets,
                codes.codes.reshape(-1),
                linked.metric == "ip",
            )
            self._codewords: Fields = tuple(codewords)
            self._run = self._search_codes

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        width: Width,
        deleted: NDArray[np.uint8] | None = None,
        threads: int = 1,
    ) -> Answers:
        """Return min(k, live rows) near rows of each query; see `Answering.answer`."""
        if self._alone is not None and len(queries) == 1:
            found = self._alone.search(queries, k, width, deleted)
            if found is not None:
                return found
        return self.answering.answer(
            self._run, queries, k, width=width, deleted=deleted, threads=threads
        )

    def sift(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        widths: NDArray[np.int64],
        sieve: NDArray[np.uint8],
        deleted: NDArray[np.uint8] | None = None,
        threads: int = 1,
    ) -> tuple[Answers, NDArray[np.float32]] | None:
        """Return those of the rows near each query that a sieve lets through.

        The beam must read packed nodes. See `Answering.sift`.

        Args:
            queries: `(q, d) float32`, contiguous, at least one.
            k: answers wanted, at least 1.
            widths: `(q,) int64`, candidates kept.
            sieve: `(n,) uint8`, non-zero for rows that must not be answered, dead ones among them.
            deleted: as for `search`.
            threads: threads to use.
        """
        run = partial(self._run_sieving, sieve)
        return self.answering.sift(run, queries, k, widths=widths, deleted=deleted, threads=threads)

    def _run_sieving(
        self,
        sieve: NDArray[np.uint8],
        batch: QueryBatch,
        stamp: Whole,
        past: Fields | None,
        sights: NDArray[np.float32],
    ) -> Whole:
        """Run as a `SiftingRun` does."""
        return search_packed(past or self._packed, tuple(batch), stamp, sieve, sights)

    def expect(self, deleted: NDArray[np.uint8]) -> None:
        """Make at once what many searches with a mask are quicker by."""
        self.answering.expect(deleted)

    def _past(self, deleted: NDArray[np.uint8]) -> Past | None:
        linked = self._linked
        space, neighbours = linked.space, linked.neighbours
        if space is None and self._folder is not None:
            space = spaces.of_rows_beside(linked.vectors, linked.metric, self._folder)
        if neighbours is None and self._nodes is not None:
            nodes = self._nodes
            neighbours = neighbours_in(nodes.array, nodes.layout, linked.max_degree)
        if space is None or neighbours is None:
            return None
        adjacency = Adjacency(neighbours, linked.degrees, linked.entry)
        chosen = choose(_to_space(space), adjacency, deleted, PAST)
        within = hollows.find(self.answering.metric, linked.vectors, adjacency, deleted)
        if linked.metric == "ip":
            from puffin_ann.ann.vamana import product_edges  # few searches choose lists

            # Lists chosen anew have lost such edges, and the longest rows of all may be deleted.
            dimension = linked.vectors.shape[1]
            product_edges.add(space, chosen, dimension, deleted=deleted, threads=1)
        if self.beam != "edges":
            return Past(to_fields(chosen), within)
        packed = layouts.make_beside(
            linked.vectors, space, chosen.neighbours, chosen.degrees, self._folder
        )
        return None if packed is None else Past(tuple(self._graph_of(packed)), within)

    def _graph_of(self, packed: PackedNodes) -> PackedGraph:
        layout, frame = packed.layout, packed.frame
        flat = read_only(packed.array).reshape(-1)
        return PackedGraph(
            flat,
            flat.view(np.uint32),
            layout.stride,
            layout.bits,
            layout.row_bytes,
            layout.code_bytes,
            layout.most,
            self._linked.entry,
            frame.origin,
            frame.scale,
            frame.across,
            frame.within,
            frame.longest,
        )

    def _search_full(self, batch: QueryBatch, stamp: Whole, past: Fields | None) -> Whole:
        moved = self._moved(batch)
        graph = past or self._graph
        return kernels.search_full(self._space, graph, moved, tuple(batch), stamp)

    def _search_codes(self, batch: QueryBatch, stamp: Whole, past: Fields | None) -> Whole:
        moved = self._moved(batch)
        graph = past or self._graph
        return kernels.search_codes(self._codewords, self._space, graph, moved, tuple(batch), stamp)

    def _search_packed(self, batch: QueryBatch, stamp: Whole, past: Fields | None) -> Whole:
        return search_packed(past or self._packed, tuple(batch), stamp, NO_SIEVE, NO_SIGHT)

    def _moved(self, batch: QueryBatch) -> NDArray[np.float32]:
        """Return the queries in the space, flat."""
        name = self.answering.metric.name
        return spaces.of_queries(batch.queries, name, self._length).reshape(-1)


def _to_space(rows: NDArray[np.float32]) -> Space:
    return Space(read_only(rows).reshape(-1), rows.shape[1])
