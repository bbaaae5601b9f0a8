"""What decides the size of an index, and what the formats can hold of it."""

import math
from dataclasses import dataclass

from puffin_ann.blobs import graph
from puffin_ann.blobs.encoding import metrics
from puffin_ann.errors import BadInputError


@dataclass(frozen=True)
class IndexShape:
    """What decides the size of an index.

    Attributes:
        rows: indexed rows.
        dimension: numbers in a vector.
        metric: `"l2"`, `"cosine"` or `"ip"`.
        max_degree: R of the graph; 0 for exhaustive search.
        mean_degree: mean neighbours of a node; an estimate if None.
        pq_subspaces: m, 0 for no codes.
        pq_bits: bits of a code.
        shards: shards the rows are spread over.
        partitions_per_shard: k-means cells in a shard.
        vectors: whether shards keep the vectors.
        identities: whether rows keep their identity.
        files: covered data files.
        row_groups: row groups of a file.
        path_bytes: mean length of a data file's path in the coverage blob.
        tombstone_ratio: share of rows deleted, evenly.
        property_bytes: free text in the routing blob.
    """

    rows: int
    dimension: int
    metric: str = "l2"
    max_degree: int = 64
    mean_degree: float | None = None
    pq_subspaces: int = 0
    pq_bits: int = 8
    shards: int = 1
    partitions_per_shard: int = 32
    vectors: bool = True
    identities: bool = True
    files: int = 1
    row_groups: int = 1
    path_bytes: int = 80
    tombstone_ratio: float = 0.0
    property_bytes: int = 2000

    def __post_init__(self) -> None:
        """Refuse shapes the formats cannot hold."""
        per_shard = math.ceil(self.rows / max(self.shards, 1))
        wrong = {
            f"rows must not be negative, got {self.rows}": self.rows < 0,
            f"shards must be at least 1, got {self.shards}": self.shards < 1,
            f"a shard of {per_shard} rows is over 2^32: use more shards": per_shard >= 1 << 32,
            f"dimension must be 1 to {graph.MAX_DIMENSION}, got {self.dimension}": not (
                0 < self.dimension <= graph.MAX_DIMENSION
            ),
            f"maximum degree must be 0 to {graph.MAX_DEGREE}, got {self.max_degree}": not (
                0 <= self.max_degree <= graph.MAX_DEGREE
            ),
            f"metric must be one of {list(metrics.CODES)}, got {self.metric!r}": (
                self.metric not in metrics.CODES
            ),
            f"bits of a code must be 1 to 8, got {self.pq_bits}": not 1 <= self.pq_bits <= 8,
            f"codes of a row must be 0 to its {self.dimension} dimensions, "
            f"got {self.pq_subspaces}": not 0 <= self.pq_subspaces <= self.dimension,
            f"mean degree must be a number of at least 0, got {self.mean_degree}": not (
                0 <= (self.mean_degree or 0) < math.inf
            ),
            f"share of deleted rows must be 0 to 1, got {self.tombstone_ratio}": not (
                0 <= self.tombstone_ratio <= 1
            ),
        }
        for message, there in wrong.items():
            if there:
                raise BadInputError(message)
