"""What the next run would do to an index, without doing it."""

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.lake.catalog.tables import load_table, name_of
from puffin_ann.lake.commit.publish_mode import publish_mode
from puffin_ann.lifecycle.ingest.preconditions import require_fit
from puffin_ann.lifecycle.maintain.former_names import advice_to_rename
from puffin_ann.lifecycle.policy.decision import Decision
from puffin_ann.lifecycle.refresh.due import find_due
from puffin_ann.search.open_index import require_snapshot
from puffin_ann.search.version.snapshot_view import live_state


class Preview(BaseModel):
    """A decision, and what it is about.

    Attributes:
        base_snapshot_id: snapshot that the base version covers; None if there is none.
        snapshot_id: the table's head.
        maintenance: whether it is that of a maintenance window.
    """

    model_config = ConfigDict(frozen=True)

    index: str
    table: str
    base_snapshot_id: int | None
    snapshot_id: int
    maintenance: bool
    decision: Decision


def preview(
    table: str | Table,
    declaration: IndexDeclaration,
    *,
    maintenance: bool = False,
    at_ms: int | None = None,
) -> Preview:
    """Decide what is due now; changes nothing. What the run would refuse is refused here, too.

    Args:
        table: by name, or as loaded.
        declaration: of the index.
        maintenance: as in a maintenance window, which rebuilds shards of many tombstones.
        at_ms: what counts as now, milliseconds since 1970.

    Raises:
        PuffinAnnError: the table or its column do not allow an index.
    """
    loaded = load_table(table)
    live = live_state(loaded, require_snapshot(loaded, None).snapshot_id)
    due = find_due(loaded, declaration, live, maintenance=maintenance, at_ms=at_ms)
    decision, state = due.decision, due.state
    advice = advice_to_rename(loaded, declaration) if state is None else ""
    if advice:
        decision = decision.model_copy(update={"reason": f"{decision.reason}; {advice}"})
    if decision.action == "build":
        require_fit(declaration, loaded, live)
    elif decision.action == "refresh":
        publish_mode(loaded, declaration.publishes_by)
    return Preview(
        index=declaration.name,
        table=name_of(loaded),
        base_snapshot_id=state.base_snapshot_id if state else None,
        snapshot_id=live.snapshot_id,
        maintenance=maintenance,
        decision=decision,
    )
