"""The recall gate: choose how wide to search, then measure, on queries not used to choose."""

import logging
import time
from collections.abc import Mapping

from puffin_ann.blobs.version.gate import Recall
from puffin_ann.errors import RecallTooLowError, StagingError
from puffin_ann.lifecycle.build import staged_index
from puffin_ann.lifecycle.build.assign import AssignSummary
from puffin_ann.lifecycle.build.train import TrainResult
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.documents.run import BuiltShard, Gated
from puffin_ann.lifecycle.evaluate.measure import RecallMeter
from puffin_ann.lifecycle.evaluate.more_rows import choose_wider
from puffin_ann.lifecycle.evaluate.scanned_cells import choose_scanned_cells
from puffin_ann.lifecycle.evaluate.tune import choose_widths, widen
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.search.open_index import open_version
from puffin_ann.search.version.index_version import load_version
from puffin_ann.search.version.snapshot_view import live_state

log = logging.getLogger("puffin_ann")


def run_gate(
    workspace: Workspace,
    trained: TrainResult,
    summary: AssignSummary,
    shards: list[BuiltShard],
    seconds: Mapping[str, float],
    figures: IndexProperties,
    *,
    algorithm: str,
) -> Gated:
    """Tune and measure the unpublished index, and stage what publishing takes.

    Args:
        workspace: the run.
        trained: centroids, and the shard of each cell.
        summary: what was read of the table.
        shards: those that were built.
        seconds: by stage, how long it took.
        figures: what earlier stages counted.
        algorithm: what the shards were built with.
    """
    began = time.monotonic()
    plan = workspace.build_plan
    declaration = plan.declaration
    location = workspace.table.location()
    routing = staged_index.routing_of(plan, trained, summary, shards, figures, algorithm=algorithm)
    coverage = staged_index.coverage_of(plan, summary, location)
    files = staged_index.centroids_of(plan, summary, coverage)
    trial = workspace.stage_bytes(
        "trial.puffin", staged_index.encode(plan, routing, coverage, files)
    )
    version = load_version(workspace.table.io, trial.uri, declaration.name)
    if version is None:
        raise StagingError(f"{trial.uri} does not hold index {declaration.name!r}")
    index = open_version(
        workspace.table, version, live_state(workspace.table, plan.base_snapshot_id)
    )
    meter = RecallMeter(trained.queries, summary.truth, declaration.gate.k)
    tuning = int(trained.tuning[0])
    chooser, rest = meter.part(0, tuning), meter.part(tuning, len(trained.queries))
    target, cells = declaration.recall_target, plan.cell_count
    chosen = choose_widths(index, chooser, target=target, cells=cells)
    width, probe, measure = widen(index, rest, chosen, target=target, cells=cells)
    if (width, probe) != chosen:
        log.info("gate: searched wider than width %d and %d cells: other queries need it", *chosen)
    wider = choose_wider(index, chooser, (width, probe), target=target)
    scanned, found = choose_scanned_cells(index, chooser, rest, target=target)
    log.info("gate: recall@%d %.4f of the %d nearest cells alone", meter.k, found, scanned)
    if routing.vectors == "none":  # then lists are looked through, as widely as on local disk
        found = measure.recall
    elapsed = time.monotonic() - began
    final = staged_index.measured(
        routing,
        width=width,
        probe_partitions=probe,
        scan_partitions=scanned,
        wider=wider,
        recall=Recall(
            k=declaration.gate.k,
            queries=measure.queries,
            recall=measure.recall,
            low=measure.low,
            high=measure.high,
            target=target,
        ),
        seconds={**seconds, "gate": elapsed},
    )
    return Gated(
        staged_index=workspace.stage_bytes(
            "staged-index.puffin", staged_index.encode(plan, final, coverage, files)
        ),
        k=declaration.gate.k,
        queries=measure.queries,
        recall=measure.recall,
        low=measure.low,
        high=measure.high,
        target=target,
        search_width=width,
        probe_partitions=probe,
        scan_partitions=scanned,
        scan_recall=found,
        seconds=elapsed,
    )


def require_passed(gated: Gated, index: str) -> None:
    """Let a run go on only if it is good enough.

    Raises:
        RecallTooLowError: the measured recall is under the target; says what was measured.
    """
    _require_scan_passed(gated, index)
    if gated.recall >= gated.target:
        return
    raise RecallTooLowError(
        f"index {index!r}: recall@{gated.k} is {gated.recall:.4f} (95 % interval {gated.low:.4f} "
        f"to {gated.high:.4f}, {gated.queries} queries, search width {gated.search_width}), under "
        f"the declared recall_target of {gated.target}; nothing was published. Raise what the "
        "algorithm spends (R and alpha of vamana, M and ef_construction of hnsw) or "
        "gate.queries, or lower recall_target"
    )


def _require_scan_passed(gated: Gated, index: str) -> None:
    if gated.scan_recall >= gated.target:
        return
    raise RecallTooLowError(
        f"index {index!r}: a search that has no shard on local disk, and compares the rows of the "
        f"{gated.scan_partitions} nearest cells, has recall@{gated.k} {gated.scan_recall:.4f} "
        f"({gated.queries} queries), under the declared recall_target of {gated.target}; nothing "
        "was published. Lower partitions_per_shard or recall_target, or raise gate.queries"
    )
