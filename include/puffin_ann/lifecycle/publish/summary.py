"""What the summary of the snapshot that publishes a version says of it."""

from collections.abc import Set

from pyiceberg.table import Table

from puffin_ann.lifecycle.documents.run import RunPlan
from puffin_ann.lifecycle.retention.tags import NEEDS, needs_text
from puffin_ann.search.version.index_version import IndexVersion


def summary_of(
    table: Table, plan: RunPlan, version: IndexVersion, named: Set[str]
) -> dict[str, str]:
    """Return the snapshot's summary: what people look for, at most ten keys an index.

    Args:
        table: as it is published into.
        plan: of the run.
        version: that is published.
        named: locations of the files that it names; tags of ours hold them.
    """
    routing = version.routing
    figures = {
        "run-id": plan.run_id,
        "base-snapshot-id": str(plan.base_snapshot_id),
        "algorithm": routing.algorithm,
        "metric": routing.metric,
        "vectors": str(version.vectors),
        "shards": str(len(routing.shards)),
        "max-tombstone-ratio": f"{version.tombstone_ratio:.4g}",
        NEEDS: needs_text(table, plan.declaration.name, named),
    }
    if routing.measured is not None:
        figures["recall"] = f"{routing.measured.recall:.4f}"
    return {f"ann.{plan.declaration.name}.{key}": value for key, value in figures.items()}
