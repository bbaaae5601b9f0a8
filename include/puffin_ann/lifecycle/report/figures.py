"""The figures of an index at one moment, for events and metrics; `status` is for people who ask."""

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table

from puffin_ann.lake.catalog.tables import load_table, name_of
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.versions.index_state import bytes_of, lag_seconds
from puffin_ann.search.version.snapshot_view import live_state, view_of
from puffin_ann.search.version.versions import require_versions


class Figures(BaseModel):
    """The newest version of an index, seen from the table's current snapshot.

    Attributes:
        index: its name.
        table: `catalog.namespace.table`.
        run_id: of the run that published the version.
        snapshot_id: snapshot under which the version is registered.
        base_snapshot_id: snapshot whose rows it covers.
        coverage: share of the rows live now that it covers.
        lag_seconds: age of the oldest change that it does not cover; 0 if there is none.
        recall: as it was measured before publication; None if it was not.
        recall_target: what it had to reach; None in the same case.
        tombstone_ratio: the highest of a shard.
        rows: rows that it answers, without tombstones.
        bytes: of its blobs.
        seconds: that the stages of its run took.
    """

    model_config = ConfigDict(frozen=True)

    index: str
    table: str
    run_id: str
    snapshot_id: int | None
    base_snapshot_id: int
    coverage: float
    lag_seconds: float
    recall: float | None
    recall_target: float | None
    tombstone_ratio: float
    rows: int
    bytes: int
    seconds: float


def figures_of(table: str | Table, index: str, *, at_ms: int | None = None) -> Figures:
    """Return the figures of an index; no vector is read.

    Args:
        table: by name, or as it was loaded.
        index: name of the index.
        at_ms: what counts as now, milliseconds since 1970.

    Raises:
        IndexNotFoundError: no version is published.
        DamagedIndexError: none can be read.
    """
    loaded = load_table(table)
    version = require_versions(loaded, index)[0]
    head = loaded.current_snapshot()
    view = view_of(loaded, version, live_state(loaded, head.snapshot_id if head else None))
    measured = version.routing.measured
    noted = IndexProperties(version.routing.properties)
    return Figures(
        index=index,
        table=name_of(loaded),
        run_id=version.run_id,
        snapshot_id=version.snapshot_id,
        base_snapshot_id=version.coverage.base_snapshot_id,
        coverage=view.coverage,
        lag_seconds=lag_seconds(loaded, version, view, at_ms=at_ms),
        recall=measured.recall if measured else None,
        recall_target=measured.target if measured else None,
        tombstone_ratio=version.tombstone_ratio,
        rows=version.vectors,
        bytes=bytes_of(loaded, version),
        seconds=sum(noted.stage_seconds.values()),
    )
