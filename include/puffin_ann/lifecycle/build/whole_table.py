"""The plan of a run that reads every live row of a snapshot."""

from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.lifecycle.build.plan import assign_tasks, shard_groups, submits
from puffin_ann.lifecycle.documents.run import (
    BuildPlan,
    PlannedFile,
)
from puffin_ann.lifecycle.ingest.preconditions import require_fit, shards_for
from puffin_ann.moments import now_ms
from puffin_ann.search.open_index import require_snapshot
from puffin_ann.search.version.snapshot_view import LiveState
from puffin_ann.settings import settings


def plan_of_whole_table(
    declaration: IndexDeclaration, table: Table, run_id: str, live: LiveState
) -> BuildPlan:
    """Return the plan of a run that reads every live row of a snapshot.

    Raises:
        PuffinAnnError: the table or its column do not allow an index.
    """
    fit = require_fit(declaration, table, live)
    shards = shards_for(declaration, fit.rows)
    base = require_snapshot(table, live.snapshot_id)
    files = tuple(PlannedFile.of(number, file) for number, file in enumerate(live.files))
    return BuildPlan(
        planned_ms=now_ms(),
        run_id=run_id,
        table=declaration.table,
        table_uuid=str(table.metadata.table_uuid),
        declaration=declaration,
        base_snapshot_id=base.snapshot_id,
        base_sequence_number=base.sequence_number or 0,
        field_id=fit.column.field_id,
        dimension=fit.dimension,
        expected_rows=fit.rows,
        files=files,
        manifests=tuple(manifest.path for manifest in live.at.manifests),
        assign_tasks=assign_tasks(
            files, row_bytes=4 * fit.dimension, task_bytes=settings().assign_task_bytes
        ),
        shards=shards if shards < declaration.shards_built else None,
        groups=shard_groups(
            shards,
            submits(4 * fit.dimension * fit.rows, declaration.build.max_submits),
        ),
        column_type=fit.column.element,
        included=fit.included,
    )
