"""Tell whether an index has fallen behind its table, by what its declaration allows."""

from pydantic import BaseModel, ConfigDict

from puffin_ann.declaration import IndexDeclaration, read_declarations, seconds_of
from puffin_ann.lake.catalog import load_table
from puffin_ann.lifecycle.changes import oldest_uncovered_ms
from puffin_ann.lifecycle.inventory import now_ms
from puffin_ann.lifecycle.source import version_to_refresh
from puffin_ann.search.coverage import live_state
from puffin_ann.settings import settings


class Staleness(BaseModel):
    """How far an index is behind.

    Attributes:
        is_stale: it is farther behind than its declaration allows.
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


def staleness_of(index: str) -> Staleness:
    """Return how far a declared index is behind its table.

    Raises:
        DeclarationError: no such index is declared.
    """
    folder = settings().declarations_dir
    return staleness(read_declarations(folder).require(index, folder))


def staleness(declaration: IndexDeclaration, *, at_ms: int | None = None) -> Staleness:
    """Return how far an index is behind its table; reads no vectors.

    Args:
        declaration: of the index.
        at_ms: what counts as now, milliseconds since 1970.
    """
    table = load_table(declaration.table)
    head = table.current_snapshot()
    if head is None:
        return Staleness(is_stale=False, reason="the table is empty", coverage=1.0, lag_seconds=0)
    source = version_to_refresh(table, declaration, live_state(table, head.snapshot_id))
    if source is None:
        return Staleness(is_stale=True, reason="not built yet", coverage=0.0, lag_seconds=0)
    version, view = source
    lag = 0.0
    if view.cost:
        now = at_ms if at_ms is not None else now_ms()
        lag = max(0.0, (now - oldest_uncovered_ms(table, version)) / 1000)
    options = declaration.refresh
    low, late = view.coverage < options.min_coverage, lag > seconds_of(options.max_lag)
    found = f"covers {view.coverage:.2%} of the rows; its oldest change waits for {lag:,.0f} s"
    if low:
        found += f"; min_coverage is {options.min_coverage:.2%}"
    if late:
        found += f"; max_lag is {options.max_lag}"
    return Staleness(is_stale=low or late, reason=found, coverage=view.coverage, lag_seconds=lag)
