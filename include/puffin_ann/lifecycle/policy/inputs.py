"""What a version of an index consists of, and what changed since: the input of a decision, as data.

Nothing here reads a table or a file: `versions.index_state` fills these in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from puffin_ann.blobs.version.routing import ShardKind
from puffin_ann.lifecycle.policy.decision import Drift, Rates
from puffin_ann.lifecycle.policy.undone import Undone


@dataclass(frozen=True)
class ShardState:
    """One shard of a version.

    Attributes:
        rows: rows of its rows blob, tombstoned ones included.
        tombstones: those of them that are deleted.
        bytes: of its engine's or delta blob.
        rows_bytes: of its rows blob, and of what keeps values of columns.
        identity_bytes: of its identities blob.
        tombstone_bytes: of its tombstones blob; 0 without one.
    """

    shard_id: int
    kind: ShardKind
    rows: int
    tombstones: int = 0
    bytes: int = 0
    rows_bytes: int = 0
    identity_bytes: int = 0
    tombstone_bytes: int = 0

    @property
    def live(self) -> int:
        """Rows that are not tombstoned."""
        return self.rows - self.tombstones

    @property
    def all_bytes(self) -> int:
        """Bytes of all its blobs."""
        return self.made_bytes + self.tombstone_bytes

    @property
    def made_bytes(self) -> int:
        """Bytes of the blobs that are written when it is made."""
        return self.bytes + self.rows_bytes + self.identity_bytes


@dataclass(frozen=True)
class IndexState:
    """The base version of a refresh.

    Attributes:
        algorithm: engine of its shards.
        dimension: numbers in a vector.
        norm_bound: largest norm that the centroids of metric `ip` allow for.
        fingerprint: of the declaration it was built by.
        declaration: that declaration, as JSON; empty if it is not known.
        base_snapshot_id: snapshot whose rows it covers.
        rows: rows indexed, tombstoned ones left out; without shards, rows of its files.
        shards: graph shards and deltas.
        other_bytes: bytes of its blobs that belong to no shard: routing, coverage, centroids.
        rates: how fast its work went when it was last done.
        drift: how well it fits the rows added since it was built.
        cells: its k-means cells; 0 if that is not known.
        unreadable: shards that cannot be read, by id, with what is wrong with each.
        lost_cells: why its cells cannot be read; empty if they can, or it is not known.
        is_named: blobs that do not change are named where they are; else they are copied.
        undone: what an earlier run was to do to its shards, and left.
    """

    algorithm: str
    metric: str
    dimension: int
    norm_bound: float
    fingerprint: str
    base_snapshot_id: int
    rows: int
    shards: tuple[ShardState, ...]
    declaration: str = ""
    other_bytes: int = 0
    rates: Rates = field(default_factory=Rates)
    drift: Drift = field(default_factory=Drift)
    cells: int = 0
    unreadable: Mapping[int, str] = field(default_factory=dict)
    lost_cells: str = ""
    is_named: bool = False
    undone: Undone = field(default_factory=Undone)

    @property
    def is_damaged(self) -> bool:
        """Tell whether something of it cannot be read."""
        return bool(self.unreadable or self.lost_cells)

    @property
    def graphs(self) -> tuple[ShardState, ...]:
        """The shards that a build made."""
        return tuple(shard for shard in self.shards if shard.kind == "graph")

    @property
    def deltas(self) -> tuple[ShardState, ...]:
        """The shards of rows added since."""
        return tuple(shard for shard in self.shards if shard.kind == "delta")

    @property
    def next_shard_id(self) -> int:
        """The number of a new delta: above any in use."""
        return max((shard.shard_id for shard in self.shards), default=-1) + 1

    @property
    def imbalance(self) -> float:
        """Rows of the largest graph shard, as a multiple of the mean; 1 without any."""
        rows = [graph.rows for graph in self.graphs]
        return max(rows) * len(rows) / sum(rows) if sum(rows) else 1.0


@dataclass(frozen=True)
class Identified:
    """What became of the added and removed rows, once they were identified.

    Attributes:
        relocated: rows that stay in their shard with another locator, restored ones included.
        new: rows that are new to the index.
        deleted: by shard, rows that become tombstones; shards without any may lack.
    """

    relocated: int
    new: int
    deleted: Mapping[int, int]


@dataclass(frozen=True)
class Change:
    """What a snapshot has that a version has not, and the other way round.

    Attributes:
        snapshot_id: the snapshot.
        live_rows: rows live in it.
        rows_added: live rows that the version does not cover.
        rows_gone: rows that it has and that are not live where it has them.
        rows_restored: those of `rows_added` that are in files it covers: deleted when it was made,
            and live again after a rollback.
        rows_left_behind: those of `rows_gone` whose whole file is gone; a rewrite puts them, or
            most of them, into another.
        files_added: files with rows that it does not cover.
        files_gone: files it covers that are not live.
        oldest_ms: when the oldest snapshot that it does not cover was committed, milliseconds
            since 1970; 0 if nothing changed.
        rows_lost: live rows that only shards have that cannot be read; not among `rows_added`.
        rows_beside: rows of the files that have these: they are read for them.
        column: why rows of the column cannot be added to the version; empty if they can.
        identified: what became of these rows; None as long as that can only be guessed.
    """

    snapshot_id: int
    live_rows: int
    rows_added: int = 0
    rows_gone: int = 0
    rows_restored: int = 0
    rows_left_behind: int = 0
    files_added: int = 0
    files_gone: int = 0
    oldest_ms: int = 0
    rows_lost: int = 0
    rows_beside: int = 0
    column: str = ""
    identified: Identified | None = None

    @property
    def rows(self) -> int:
        """Rows that a search has to scan or to mask."""
        return self.rows_added + self.rows_gone
