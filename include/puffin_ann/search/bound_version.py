"""A version of an index, bound to one snapshot of its table: what searches are made of."""

from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.table import Table

from puffin_ann.declaration import CENTROID
from puffin_ann.errors import ColumnNotFoundError
from puffin_ann.lake.catalog.scope import scope_of
from puffin_ann.lake.read.data.columns import DataFile
from puffin_ann.lake.read.data.row_vectors import RowVectorReader
from puffin_ann.lake.read.data.vector_column import VectorColumn, vector_column
from puffin_ann.search.answers import Answers
from puffin_ann.search.brute_force import Scan
from puffin_ann.search.cache.local_cache import LocalCache
from puffin_ann.search.conditions.allowed_rows import AllowedRows
from puffin_ann.search.conditions.kept import KeptConditions
from puffin_ann.search.explain.explanation import GIVEN, Opening
from puffin_ann.search.failover import tell_lost_cells
from puffin_ann.search.files.tier import FileTier
from puffin_ann.search.included.kept_columns import KeptColumns
from puffin_ann.search.results import SearchReport
from puffin_ann.search.shards.tier import ShardTier
from puffin_ann.search.version.index_version import IndexVersion
from puffin_ann.search.version.snapshot_view import SnapshotView
from puffin_ann.settings import CacheMode, StalePolicy


@dataclass
class BoundVersion:
    """The parts of a search, each made when it is first needed.

    Attributes:
        table: as it was loaded.
        version: of the index.
        view: of it, from the snapshot.
        cache: on local disk.
        damage: what could not be read of the index, one sentence each; every answer tells it.
        falls_back: whether another published version takes over where this one is damaged.
        cache_mode: when shards are brought to local disk.
        stale_policy: whether searches compare rows outside the index, unless they say otherwise.
        opening: how the version was chosen.
    """

    table: Table
    version: IndexVersion
    view: SnapshotView
    cache: LocalCache = field(default_factory=LocalCache)
    damage: tuple[str, ...] = ()
    falls_back: bool = False
    cache_mode: CacheMode = "full"
    stale_policy: StalePolicy = "scan"
    opening: Opening = GIVEN
    _conditions: KeptConditions = field(default_factory=KeptConditions, init=False, repr=False)

    @property
    def name(self) -> str:
        """Name of the index."""
        return self.version.index

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return self.version.routing.dimension

    @property
    def metric(self) -> str:
        """`l2`, `cosine` or `ip`."""
        return self.version.routing.metric

    @property
    def damaged_shards(self) -> frozenset[int]:
        """Ids of the shards that could not be read."""
        tier = self.__dict__.get("_shards")
        return frozenset(tier.damaged if tier else ())

    @cached_property
    def _scan(self) -> Scan:
        return Scan(self.table, self.view, self.column, self.metric)

    @property
    def column(self) -> VectorColumn:
        """Find the indexed column by its field id, in the schema that the snapshot is read by.

        Raises:
            ColumnNotFoundError: that has it not; `open_index` opens no such version.
        """
        schema = self.view.schema(self.table)
        name = schema.find_column_name(self.version.field_id)
        if name is None:
            raise ColumnNotFoundError(
                f"index {self.name!r} was built of the column of field id {self.version.field_id}, "
                f"which the schema of snapshot {self.view.snapshot_id} has not"
            )
        return vector_column(schema, name, mapping=self.table.name_mapping())

    @property
    def _ranges_read(self) -> int:
        tier = self.__dict__.get("_shards")
        return tier.ranges_read if tier else 0

    @property
    def _table_read(self) -> int:
        tier = self.__dict__.get("_shards")
        return tier.table_bytes_read if tier else 0

    @cached_property
    def _shards(self) -> ShardTier:
        scope = scope_of(self.table)
        return ShardTier(
            self.table.io,
            self.version,
            self.view,
            self.cache,
            scope,
            self.cache_mode,
            self._row_vectors,
        )

    @cached_property
    def _kept(self) -> KeptColumns:
        """Values of columns that the version keeps of its rows."""
        return KeptColumns(self.table.io, self.version)

    def _row_vectors(self) -> RowVectorReader:
        """Return what reads vectors that shards have not as they are."""
        sizes = self.view.sizes.tolist()
        files = [DataFile(*file) for file in zip(self.view.files, sizes, strict=True)]
        return RowVectorReader(self.table, self.column, self.dimension, files)

    @cached_property
    def _files(self) -> FileTier | None:
        """The data files themselves, where the index is of their centroids alone."""
        if self.version.routing.algorithm != CENTROID:
            return None
        return FileTier(self.table, self.version, self.view, self.column)

    def _report(
        self,
        zeros: int,
        probed: int,
        scanned: int,
        by_ranges: int = 0,
        table_bytes: int = 0,
        allowed: AllowedRows | None = None,
    ) -> SearchReport:
        tier = self.__dict__.get("_shards")
        lost_cells = tell_lost_cells(self.table, tier.routes.lost_cells) if tier else ()
        return SearchReport(
            index_snapshot=self.version.snapshot_id,
            base_snapshot=self.version.coverage.base_snapshot_id,
            snapshot=self.view.snapshot_id,
            coverage=self.view.coverage,
            shards_probed=probed,
            rows_scanned=scanned,
            bytes_by_ranges=by_ranges,
            bytes_of_table=table_bytes,
            where=None if allowed is None else allowed.condition.text,
            queries_of_zeros=zeros,
            rows_allowed=None if allowed is None else allowed.rows,
            damaged=(*self.damage, *lost_cells, *self._kept.damage),
        )

    @cached_property
    def _answers(self) -> Answers:
        return Answers(self.table, self.view, self._kept)
