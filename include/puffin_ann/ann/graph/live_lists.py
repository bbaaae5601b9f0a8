"""Neighbour lists that lead past deleted rows, chosen once for a mask that stays.

Searches pass through deleted rows (`kernels_frontier`), which costs what live ones cost. Where many
lie in a cluster, all of a query's nearest rows may be deleted: then it takes up to twice the time.
So for a mask that comes with many queries (`core.lasting_masks`), lists that have deleted rows in
them are chosen anew: of a live row's list, each deleted neighbour gives way to live rows near that
one, and the whole is pruned as a build does it, as DiskANN consolidates deletes. A deleted row,
which a search may begin at, gets a list of live rows near it. Nothing else leads to one any more.

The live rows near a deleted one are found without a search: they are its live neighbours, and
those found for its deleted neighbours, so that they spread from the edge of a cluster to its
middle. That makes it cheap; to search a place for each deleted row takes 0.2 to 0.6 ms.

Speed at recall@10 0.95 as a share of that without deleted rows, with 5 and 19 % deleted in one
cluster (98,000 rows of GloVe; another cluster than the benchmark's, a hard one), and the seconds
of one thread that making it took:

| | passing through | lists chosen anew | seconds |
|---|---|---|---|
| HNSW | 0.78, 0.65 | 0.90, 0.97 | 0.5, 1.6 |
| packed nodes | 0.86, 0.68 | 1.02, 0.99 | 1.7, 2.4 |

Packed nodes are made again of all rows, which is half of those seconds. The shard built again of
its live rows would take 26 and 7 seconds, and give HNSW 1.2 and 1.5, packed nodes 1.0 and 1.2 in
the benchmark's cluster.

The slack of pruning matters: at 1.0, HNSW has 0.79 and 1.00 in the benchmark's cluster, at 1.2
0.94 and 1.11, at 1.3 less again. So does how many live rows take the place of a deleted one: with
half of them HNSW loses 0.03 to 0.06, and gains nothing more with more; packed nodes, whose lists
are longer, gain 0.04 with twice as many, for half as much time again.

The graph that is stored stays as it is, and so do the masks: they decide what is answered. Lists
depend on rows, graph and mask alone.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.memmap import read_only
from puffin_ann.ann.core.types import Fields
from puffin_ann.ann.graph import kernels_connectivity
from puffin_ann.ann.graph import kernels_live_lists as kernels
from puffin_ann.ann.graph.arguments import Adjacency, FlatAdjacency, Space
from puffin_ann.ann.graph.hollows import Hollows

REPAIR_KEEP = 32


class Past(NamedTuple):
    """A graph that leads past deleted rows, as a search reads it.

    Attributes:
        graph: its fields.
        hollows: where deleted rows lay close together, which the graph does not tell any more;
            None if they did nowhere.
    """

    graph: Fields
    hollows: Hollows | None


class Effort(NamedTuple):
    """How far live rows are looked for.

    Attributes:
        near: live rows found near each deleted one.
        taken: of these, how many are candidates in its place.
        rounds: how often they are handed on from deleted row to deleted row.
        alpha: slack of pruning.
    """

    near: int
    taken: int
    rounds: int
    alpha: float


def choose(space: Space, graph: Adjacency, deleted: NDArray[np.uint8], effort: Effort) -> Adjacency:
    """Return a graph in which live rows lead to live rows alone, as far as any are found.

    Every live row can be reached from the entry, if it could be before.

    Args:
        space: the rows.
        graph: their neighbours; left as it is.
        deleted: `(n,) uint8`, non-zero for deleted rows.
        effort: see there.
    """
    graph = Adjacency(read_only(graph.neighbours), read_only(graph.degrees), graph.entry)
    deleted = read_only(deleted)
    rows = np.flatnonzero(deleted).astype(np.uint32)
    place = np.zeros(len(deleted), np.uint32)
    place[rows] = np.arange(len(rows), dtype=np.uint32)
    near = np.zeros((len(rows), effort.near), np.uint32)
    counts = np.zeros(len(rows), np.uint16)
    for _ in range(effort.rounds):
        kernels.find_near_live(space, graph, deleted, rows, place, near, counts)
    chosen = Adjacency(graph.neighbours.copy(), graph.degrees.copy(), graph.entry)
    kernels.choose_live(
        space, graph, deleted, place, near, counts, effort.taken, effort.alpha, chosen
    )
    kernels_connectivity.make_reachable(space, chosen, REPAIR_KEEP, deleted)
    return chosen


def to_fields(graph: Adjacency) -> Fields:
    """Return the fields of a `FlatAdjacency`."""
    lists = read_only(graph.neighbours)
    flat = FlatAdjacency(lists.reshape(-1), lists.shape[1], read_only(graph.degrees), graph.entry)
    return tuple(flat)
