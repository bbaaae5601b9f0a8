"""Tell what an index waits for: a refresh, by how far it is behind its table, or a rebuild.

Both go by what its declaration allows, and read no vectors.
"""

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table

from puffin_ann.declaration import (
    IndexDeclaration,
    declarations_folders,
    read_declarations,
    seconds_of,
)
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lifecycle.policy.decide import find_shards_to_rebuild
from puffin_ann.lifecycle.versions.base_version import BaseVersion, version_to_refresh
from puffin_ann.lifecycle.versions.index_state import change_in, lag_seconds, state_of
from puffin_ann.moments import now_ms
from puffin_ann.search.version.indexed_column import why_unanswered
from puffin_ann.search.version.snapshot_view import LiveState, live_state


class Staleness(BaseModel):
    """How far an index is behind.

    Attributes:
        is_stale: it is farther behind than its declaration allows, or its column is not what its
            name means by now.
        reason: one sentence for people.
        coverage: share of the table's live rows that the version covers which a refresh would
            start from.
        lag_seconds: age of the oldest change that it does not cover; 0 if there is none.
    """

    model_config = ConfigDict(frozen=True)

    is_stale: bool
    reason: str
    coverage: float
    lag_seconds: float


class Tombstones(BaseModel):
    """What an index holds of deleted rows.

    Attributes:
        is_due: a maintenance window would rebuild shards for it.
        reason: one sentence for people.
        ratios: of each of these shards, the share of its rows that is deleted.
    """

    model_config = ConfigDict(frozen=True)

    is_due: bool
    reason: str
    ratios: dict[int, float]


def staleness_of(index: str | IndexDeclaration) -> Staleness:
    """Return how far a declared index is behind its table.

    Raises:
        DeclarationError: no such index is declared.
    """
    return staleness(_declared(index))


def staleness(declaration: IndexDeclaration, *, at_ms: int | None = None) -> Staleness:
    """Return how far an index is behind its table.

    Args:
        declaration: of the index.
        at_ms: what counts as now, milliseconds since 1970.
    """
    table, _, base = _looked_at(declaration)
    if table.current_snapshot() is None:
        return Staleness(is_stale=False, reason="the table is empty", coverage=1.0, lag_seconds=0)
    if base is None:
        return Staleness(is_stale=True, reason="not built yet", coverage=0.0, lag_seconds=0)
    version, view = base.version, base.view
    lag = lag_seconds(table, version, view, at_ms=at_ms)
    options = declaration.refresh
    low, late = view.coverage < options.min_coverage, lag > seconds_of(options.max_lag)
    other = why_unanswered(table, [version], view)
    if other is not None:
        reason = f"does not answer: it {other.what}"
        return Staleness(is_stale=True, reason=reason, coverage=view.coverage, lag_seconds=lag)
    found = f"covers {view.coverage:.2%} of the rows; its oldest change waits for {lag:,.0f} s"
    if low:
        found += f"; min_coverage is {options.min_coverage:.2%}"
    if late:
        found += f"; max_lag is {options.max_lag}"
    return Staleness(is_stale=low or late, reason=found, coverage=view.coverage, lag_seconds=lag)


def tombstones_of(index: str | IndexDeclaration, ratio: float | None = None) -> Tombstones:
    """Return what a declared index holds of deleted rows; see `tombstones`.

    Raises:
        DeclarationError: no such index is declared.
    """
    return tombstones(_declared(index), ratio=ratio)


def tombstones(
    declaration: IndexDeclaration, *, ratio: float | None = None, at_ms: int | None = None
) -> Tombstones:
    """Return which shards of an index a maintenance window would rebuild for their deleted rows.

    Rows deleted since it was published count from when a refresh would publish them, as many of
    each shard as are expected there.

    Args:
        declaration: of the index.
        ratio: take it for `rebuild.tombstone_ratio`.
        at_ms: what counts as now, milliseconds since 1970.

    Raises:
        ColumnNotFoundError, UnsupportedColumnError: the column or the key cannot be used.
    """
    table, live, base = _looked_at(declaration)
    if base is None:
        return Tombstones(is_due=False, reason="not built yet", ratios={})
    version, view = base.version, base.view
    bound, name = declaration.rebuild.tombstone_ratio, "rebuild.tombstone_ratio"
    if ratio is not None:
        bound, name = ratio, "the ratio asked for,"
        options = declaration.rebuild.model_copy(update={"tombstone_ratio": ratio})
        declaration = declaration.model_copy(update={"rebuild": options})
    ratios = find_shards_to_rebuild(
        state_of(table, version),
        change_in(table, version, live, view, declaration),
        declaration,
        now_ms=at_ms if at_ms is not None else now_ms(),
    )
    if ratios:
        most = max(ratios.values())
        found = f"{len(ratios)} of {len(version.routing.shards)} shards are to be rebuilt: "
        found += f"up to {most:.1%} of the rows of one are deleted, above {name} {bound:.1%}"
    else:
        found = f"no shard is to be rebuilt: at most {version.tombstone_ratio:.1%} of one are "
        found += (
            f"tombstones, {view.rows_masked:,} rows removed since; {name} {bound:.1%} is not passed"
        )
    return Tombstones(is_due=bool(ratios), reason=found, ratios=ratios)


def _declared(index: str | IndexDeclaration) -> IndexDeclaration:
    if isinstance(index, IndexDeclaration):
        return index
    return read_declarations(*declarations_folders()).require(index)


def _looked_at(
    declaration: IndexDeclaration,
) -> tuple[Table, LiveState, BaseVersion | None]:
    """Return the table, what lives at its head, and the version that a refresh starts from."""
    table = load_table(declaration.table)
    head = table.current_snapshot()
    live = live_state(table, head.snapshot_id if head else None)
    return table, live, version_to_refresh(table, declaration, live)
