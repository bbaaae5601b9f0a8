"""What a refresh notes in the version that it makes."""

from collections.abc import Mapping, Sequence

from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.lifecycle.build.assign import AssignSummary
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.documents.refresh import (
    AppliedGroup,
    AppliedShard,
    Changes,
    RefreshPlan,
)
from puffin_ann.lifecycle.policy.decision import MEASURED_ROWS, Drift, Rates
from puffin_ann.lifecycle.policy.undone import Undone
from puffin_ann.search.version.index_version import IndexVersion


def noting(
    plan: RefreshPlan,
    base: IndexVersion,
    changes: Changes,
    summary: AssignSummary | None,
    groups: Sequence[AppliedGroup],
    entries: Sequence[ShardEntry],
) -> IndexProperties:
    """Return what is noted in the new version.

    Args:
        plan: of the run.
        base: the version refreshed.
        changes: what the run found.
        summary: of the rows that it read; None if it read none.
        groups: what became of shards.
        entries: the shards of the new version.
    """
    applied = [shard for group in groups for shard in group.shards]
    before = IndexProperties(base.routing.properties)
    compared = {shard.shard_id: shard.before for shard in applied if shard.before is not None}
    is_refused = any(shard.refused is not None for shard in applied)
    noted = before.noting(
        declaration=plan.declaration.model_dump_json(),
        run_id=plan.run_id,
        stage_seconds={
            "read": changes.seconds,
            "apply": sum(group.seconds for group in groups),
        },
        vector_bytes_read=changes.vector_bytes_read
        + sum(shard.vector_bytes_read for shard in applied),
        skipped=_skipped(before.skipped, changes),
        next_file_id=plan.next_file_id,
        rates=_rates(plan, changes, applied),
        drift=_drift(plan, base, changes, summary, is_refused=is_refused),
    )
    recalls = before.shard_recalls.noting(compared, plan.declaration.gate.k)
    if recalls != before.shard_recalls:
        noted = noted.noting(shard_recalls=recalls)
    undone = undone_after(before.undone, plan, applied, entries)
    return noted if undone == before.undone else noted.noting(undone=undone)


def undone_after(
    before: Undone,
    plan: RefreshPlan,
    applied: Sequence[AppliedShard],
    entries: Sequence[ShardEntry],
) -> Undone:
    """Return what waits for more rows once a run did what it could.

    Args:
        before: what waited.
        plan: of the run.
        applied: what became of shards.
        entries: the shards of the new version.
    """
    refused = [shard for shard in applied if shard.refused is not None]
    merges = plan.decision.merges
    made = {shard.shard_id for shard in applied if shard.action in ("insert", "rebuild")}
    live = {entry.shard_id: entry.rows - entry.tombstones for entry in entries}
    waits = {number: rows for number, rows in before.live_rows.items() if number not in made}
    waits |= {
        shard.shard_id: live[shard.shard_id]
        for shard in refused
        if plan.action_of(shard.shard_id) == "rebuild"
    }
    in_deltas = sum(live[entry.shard_id] for entry in entries if entry.kind == "delta")
    left = in_deltas if refused else 0
    delta_rows = left if merges else before.delta_rows
    if not (delta_rows or waits):
        return Undone()
    told = before.model_copy(update={"delta_rows": delta_rows, "live_rows": waits})
    if not refused:
        return told
    return told.model_copy(
        update={
            "run_id": plan.run_id,
            "reason": _why_refused(refused),
            "target": plan.declaration.recall_target,
            "refused": tuple(shard.shard_id for shard in refused),
        }
    )


def _why_refused(refused: Sequence[AppliedShard]) -> str:
    """Say what the worst of refused shards would have found."""
    worst = min((shard.refused for shard in refused if shard.refused), key=lambda why: why.recall)
    others = f" ({len(refused) - 1:,} more fell short, too)" if len(refused) > 1 else ""
    return f"{worst.why}{others}"


def _skipped(before: Mapping[str, int], changes: Changes) -> dict[str, int]:
    """Return how many rows were skipped since the index was built, by reason."""
    return {
        reason: before.get(reason, 0) + changes.skipped.get(reason, 0)
        for reason in sorted({*before, *changes.skipped})
    }


def _rates(plan: RefreshPlan, changes: Changes, applied: Sequence[AppliedShard]) -> Rates:
    """Return how fast the work went, where there was enough of it to tell."""
    rates = plan.state_rates
    if changes.read >= MEASURED_ROWS and changes.read_seconds > 0:
        rates = rates.model_copy(update={"read": changes.read / changes.read_seconds})
    for name, action in (("insert", "insert"), ("build", "rebuild")):
        rows = sum(shard.added for shard in applied if shard.action == action)
        seconds = sum(shard.seconds for shard in applied if shard.action == action)
        if rows >= MEASURED_ROWS and seconds > 0:
            # One slow run, on a busy machine or one that had to compile first, may halve a rate.
            rate = max(rows / seconds, getattr(rates, name) / 2)
            rates = rates.model_copy(update={name: rate})
    return rates


def _drift(
    plan: RefreshPlan,
    base: IndexVersion,
    changes: Changes,
    summary: AssignSummary | None,
    *,
    is_refused: bool,
) -> Drift:
    """Return how well the centroids fit rows in deltas, or those that were merged last.

    What a run merges is judged once more, by the next one: it may never have been in a delta. Where
    shards refused some of it, that is in one, and stands for all.
    """
    drift = plan.state_drift
    used_up = {shard.shard_id for shard in plan.decision.shards if shard.action == "merge"}
    kept = sum(
        shard.rows
        for shard in base.routing.shards
        if shard.kind == "delta" and shard.shard_id not in used_up
    )
    distance, norm, rows = kept * drift.added, drift.largest_norm, kept
    if summary is not None:  # of the added rows, and of deltas that are used up
        norm = max(norm, float(summary.largest_norm[0]) if changes.rows else 0.0)
        distance += float(summary.distance_sum[0])
        rows += changes.rows
    if rows:
        merged = rows if plan.decision.merges and not is_refused else 0
        drift = drift.model_copy(update={"added": distance / rows, "merged": merged})
    elif not drift.merged:
        drift = drift.model_copy(update={"added": 0.0})
    return drift.model_copy(update={"largest_norm": norm})
