"""Build a graph in bulk: exact neighbours within overlapping leaves, then pruned.

Random rows lead; every row joins the leaves of its nearest leaders, so that near rows meet in
several leaves; and all of that twice, with other leaders. Wide rows are compared along the axes in
which they vary most (`leading_axes`). Each row has its own slot for what it
finds in each of its leaves, which makes the outcome the same in whatever order they are worked off.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core import blas
from puffin_ann.ann.graph.arguments import Space
from puffin_ann.ann.vamana.bulk import kernels_bulk_build as kernels
from puffin_ann.ann.vamana.bulk import leading_axes
from puffin_ann.ann.vamana.bulk.leading_axes import Leading

ASSIGN_BLOCK = 2048
CHOOSE_BLOCK = 1024
WIDE = 256


@dataclass(frozen=True)
class Plan:
    """How much work the build puts into finding neighbours.

    Attributes:
        leaf: rows of a leaf on average, before those too large are cut.
        fan: leaves that a row joins, each time.
        rounds: how often leaders are drawn.
        nearest: neighbours taken from each leaf.
    """

    leaf: int = 1024
    fan: int = 6
    rounds: int = 2
    nearest: int = 8

    @property
    def most(self) -> int:
        """Rows of a leaf at most; a larger one is cut at random, for its cost is quadratic."""
        return self.leaf * 5 // 4

    @property
    def slots(self) -> int:
        """Neighbours found for a row, doubles included."""
        return self.rounds * self.fan * self.nearest

    @classmethod
    def of_dim(cls, dim: int) -> "Plan":
        """Return the plan for rows of so many numbers.

        Comparing wide rows is most of the work, so their leaves are smaller: at 384 dimensions
        that takes a fourteenth off the build and nothing off the graph, at 100 it is the graph
        that loses. They lie in more leaves, since choosing among their fewer neighbours takes less:
        with 8 a search expands a tenth less than with 5 for a recall of 0.95, a fifth for 0.99.
        """
        return cls(leaf=768, fan=8) if dim > WIDE else cls()


def build(
    space: NDArray[np.float32],
    rows: NDArray[np.uint32],
    *,
    most: int,
    alpha: float,
    plan: Plan,
    seed: list[int],
    threads: int,
    folder: Path | None,
    progress: Callable[[float], None],
) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
    """Return neighbours `(n, R) uint32`, 0 beyond the degree, and degrees `(n,) uint16`.

    Args:
        space: `(n, w) float32`; may be memory-mapped.
        rows: `(m,) uint32`, ascending; the others get no neighbours.
        most: R.
        alpha: slack of pruning.
        plan: how much work to do.
        seed: of the leaders.
        threads: threads to use.
        folder: for files that end with the build; None keeps in memory what they would hold.
        progress: told the share that is done.
    """
    forward = np.full((len(space), max(plan.slots, most)), kernels.NONE, np.uint32)
    generator = np.random.default_rng(seed)
    near = leading_axes.of_rows(space, rows, folder, threads)
    with blas.single_thread():
        for turn in range(plan.rounds):
            slot = turn * plan.fan * plan.nearest
            leaves = _leaves(near, rows, plan, generator, threads)
            leaves.find(forward, slot, threads)
            progress((turn + 1) / (plan.rounds + 1))
    return _chosen(near.rows, forward, leaves.in_order, most, alpha, threads)


@dataclass(frozen=True, eq=False)
class _Leaves:
    """Entries are row · fan + slot, counted among the rows that take part.

    Attributes:
        near: what is compared.
        rows: `(m,) uint32`, those that take part.
        plan: how much work to do.
        members: entries of each leaf.
        in_order: `(m,) uint32`, the rows by their nearest leader.
    """

    near: Leading
    rows: NDArray[np.uint32]
    plan: Plan
    members: list[NDArray[np.uint32]]
    in_order: NDArray[np.uint32]

    def find(self, forward: NDArray[np.uint32], first_slot: int, threads: int) -> None:
        """Find the nearest rows within every leaf and write them to their slots."""
        plan = self.plan
        scratch = Scratch(plan, self.near.few)

        def work(entries: NDArray[np.uint32]) -> None:
            rows = self.rows[entries // plan.fan]
            slots = (first_slot + entries % plan.fan * plan.nearest).astype(np.uint32)
            places = nearest_within(self.near, rows, plan.nearest, scratch)
            kernels.put_neighbours(rows, slots, places, forward)

        for _ in blas.parallel(work, self.members, threads):
            pass


def _leaves(
    near: Leading,
    rows: NDArray[np.uint32],
    plan: Plan,
    generator: np.random.Generator,
    threads: int,
) -> _Leaves:
    """Draw leaders, let every row join its nearest ones, and cut what has become too large."""
    count = max(1, len(rows) * plan.fan // plan.leaf)
    leaders = rows[np.sort(generator.choice(len(rows), count, replace=False))]
    joined = np.empty((len(rows), plan.fan), np.uint32)
    turned = np.ascontiguousarray(near.rows[leaders, : near.few].T)
    squares = np.einsum("ij,ij->j", turned, turned) + near.rest[leaders]

    def join(first: int) -> None:
        part = slice(first, first + ASSIGN_BLOCK)
        products = near.rows[rows[part]][:, : near.few] @ turned
        kernels.nearest(products, squares, -(1 << 40), joined[part])

    for _ in blas.parallel(join, range(0, len(rows), ASSIGN_BLOCK), threads):
        pass
    starts = np.empty(count + 1, np.int64)
    members = np.empty(joined.size, np.uint32)
    kernels.group(joined.reshape(-1), starts, members)
    leaves = []
    for leaf in range(count):
        entries = members[starts[leaf] : starts[leaf + 1]]
        pieces = -(-len(entries) // plan.most)
        if pieces > 1:
            entries = generator.permutation(entries)
        leaves += [part for part in np.array_split(entries, max(1, pieces)) if len(part) > 1]
    in_order = rows[np.argsort(joined[:, 0], kind="stable")]
    return _Leaves(near, rows, plan, leaves, in_order)


class Scratch(threading.local):
    """Arrays a thread uses for leaf after leaf: fresh ones cost a page fault every 4 KiB."""

    def __init__(self, plan: Plan, dim: int) -> None:
        most = plan.most
        self.moved = np.empty((most, dim), np.float32)
        self.squares = np.empty(most, np.float32)
        self.products = np.empty(most * most, np.float32)


def nearest_within(
    near: Leading, rows: NDArray[np.uint32], count: int, scratch: Scratch
) -> NDArray[np.uint32]:
    """Return each row's nearest others in a leaf, `(m, count) uint32` places in it."""
    size = len(rows)
    moved, squares = scratch.moved[:size], scratch.squares[:size]
    kernels.gather(near.rows, rows, moved, squares)
    squares += near.rest[rows]
    products = scratch.products[: size * size].reshape(size, size)
    # All of them at once: numpy makes a matrix times its own transpose by half the multiplications.
    np.dot(moved, moved.T, out=products)
    places = np.empty((size, count), np.uint32)
    kernels.nearest(products, squares, 0, places)
    return places


class _Seen(threading.local):
    """What a thread remembers of the lines it has been through; see `kernels.tidy`."""

    def __init__(self, rows: int) -> None:
        self.by = np.zeros(rows, np.uint32)


def _chosen(
    space: NDArray[np.float32],
    forward: NDArray[np.uint32],
    in_order: NDArray[np.uint32],
    most: int,
    alpha: float,
    threads: int,
) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
    """Choose neighbours among all found; near rows soon after each other, which memory rewards."""
    rows = len(space)
    counts = np.zeros(rows, np.int32)
    blocks = [(at, min(at + CHOOSE_BLOCK, rows)) for at in range(0, rows, CHOOSE_BLOCK)]

    scratch = _Seen(rows)

    def tidy(block: tuple[int, int]) -> None:
        kernels.tidy(forward, *block, counts, scratch.by)

    for _ in blas.parallel(tidy, blocks, threads):
        pass
    starts = np.empty(rows + 1, np.int64)
    sources = np.empty(int(counts.sum(dtype=np.int64)), np.uint32)
    kernels.turn_round(forward, counts, starts, sources)
    degrees = np.zeros(rows, np.uint16)
    flat = Space(space.reshape(-1), space.shape[1])
    found = kernels.Found(forward, counts, starts, sources)

    def choose(first: int) -> None:
        some = in_order[first : first + CHOOSE_BLOCK]
        kernels.choose(flat, found, some, most, alpha, degrees)

    for _ in blas.parallel(choose, range(0, len(in_order), CHOOSE_BLOCK), threads):
        pass
    kernels.compact(forward.reshape(-1), forward.shape[1], most, degrees)
    forward.resize((rows, most), refcheck=False)  # in place: no second copy of the graph
    return forward, degrees
