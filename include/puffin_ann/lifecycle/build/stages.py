"""The stages `train`, `assign`, `build_group` and `gate`: a runner and a run in, a document out.

The caller, a Spark driver as a rule, deals out work and collects pointers and counts; vectors pass
through executors and the table's store only. Each stage ends by creating its document, and begins
by looking for it.
"""

import logging
import time
from collections.abc import Sequence
from functools import partial

from puffin_ann.errors import PuffinFormatError, StagingError, StagingGoneError
from puffin_ann.lifecycle.build import assign as assigning
from puffin_ann.lifecycle.build import auto_algorithm
from puffin_ann.lifecycle.build import train as training
from puffin_ann.lifecycle.build.assign import AssignSummary
from puffin_ann.lifecycle.build.gate import require_passed, run_gate
from puffin_ann.lifecycle.build.shard import build_shard, of_engine
from puffin_ann.lifecycle.build.train import TrainResult
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.documents.run import (
    ASSIGN,
    CHOICE,
    GATE,
    TRAIN,
    Assigned,
    AssignOutcome,
    BuiltGroup,
    BuiltShard,
    Choice,
    Gated,
    StagedFile,
    Trained,
    done,
    group_name,
    load,
    store,
)
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.ingest import sampling
from puffin_ann.lifecycle.policy.decision import MEASURED_ROWS, Rates
from puffin_ann.lifecycle.runtime.progress import Size, reporter
from puffin_ann.lifecycle.runtime.run_each import run_each
from puffin_ann.lifecycle.runtime.runners import Runner
from puffin_ann.lifecycle.runtime.workspace import (
    Workspace,
    arrays_from_bytes,
    arrays_to_bytes,
    at_work,
)
from puffin_ann.wording import counted

log = logging.getLogger("puffin_ann")


def train(runner: Runner, run: RunRef) -> Trained:
    """Sample the table, train centroids, hold out the gate's queries."""
    workspace = Workspace.open(run)
    with at_work(workspace):
        finished = done(workspace.staging, TRAIN, Trained)
        if finished:
            log.info("train: done before, %d rows sampled", finished.sampled_rows)
            return finished
        return _train(runner, workspace)


def _train(runner: Runner, workspace: Workspace) -> Trained:
    began = time.monotonic()
    run = workspace.run
    tasks = training.sample_tasks(workspace.build_plan)
    if training.is_small(workspace.build_plan, tasks):
        runner = runner.here()
    log.info(
        "train: sampling %s of %s",
        counted(sum(t.rows for t in tasks), "row"),
        counted(len(tasks), "file"),
    )
    size = Size.of_vectors([task.rows for task in tasks], workspace.build_plan.dimension)
    samples = run_each(runner, run, sampling.sample, tasks, size=size)
    learn = partial(_learn, threads=runner.threads_per_task(1))
    (result,) = run_each(runner, run, learn, [samples])
    trained = Trained(
        result=result,
        choice=load(workspace.staging, CHOICE, Choice),
        sampled_rows=sum(task.rows for task in tasks),
        seconds=time.monotonic() - began,
    )
    log.info("train: %d centroids in %.1f s", workspace.build_plan.cell_count, trained.seconds)
    for trial in trained.choice.trials:
        log.info(
            "train: %s reaches recall %.4f at width %d with %.0f queries a second on one thread, "
            "over %d sampled rows",
            trial.algorithm,
            trial.recall,
            trial.search_width,
            trial.queries_per_second,
            trial.rows,
        )
    log.info("train: algorithm %s", trained.choice.algorithm)
    return store(workspace.staging, TRAIN, trained)


def _learn(workspace: Workspace, samples: list[StagedFile], *, threads: int) -> StagedFile:
    """Train centroids on the samples, and choose the algorithm."""
    plan = workspace.build_plan
    rows = sampling.read_samples(workspace, samples)
    result = training.train(plan, rows, threads=threads)
    staged = workspace.stage_bytes("train.arrays", arrays_to_bytes(result))
    choice = done(workspace.staging, CHOICE, Choice) or auto_algorithm.choose(
        plan,
        rows.vectors,
        training.held_out(plan, len(rows.vectors)),
        norm_bound=float(result.norm_bound[0]),
        threads=threads,
    )
    store(workspace.staging, CHOICE, choice)
    return staged


def assign(runner: Runner, run: RunRef) -> Assigned:
    """Read every covered file once, stage its rows grouped by shard."""
    workspace = Workspace.open(run)
    with at_work(workspace):
        finished = done(workspace.staging, ASSIGN, Assigned)
        if finished:
            log.info("assign: done before, %d rows", finished.rows)
            return finished
        return _assign(runner, workspace)


def _assign(runner: Runner, workspace: Workspace) -> Assigned:
    began = time.monotonic()
    run = workspace.run
    tasks = range(len(workspace.build_plan.assign_tasks))
    assign_rows = partial(
        _assign_rows,
        trained=load(workspace.staging, TRAIN, Trained),
        threads=runner.threads_per_task(len(tasks)),
    )
    plan = workspace.build_plan
    size = Size.of_vectors([plan.rows_of(task) for task in plan.assign_tasks], plan.dimension)
    outcomes = run_each(runner, run, assign_rows, tasks, size=size)
    summing = runner if len(outcomes) > 1 else runner.here()
    (summary,) = run_each(summing, run, assigning.summarise, [outcomes])
    document = assigning.assigned(workspace.build_plan, outcomes, summary, time.monotonic() - began)
    log.info(
        "assign: %s of %s in %.1f s; %d deleted, skipped: %s",
        counted(document.rows, "row"),
        counted(len(workspace.build_plan.files), "file"),
        document.seconds,
        document.deleted,
        document.skipped or "none",
    )
    return store(workspace.staging, ASSIGN, document)


def _assign_rows(
    workspace: Workspace, number: int, *, trained: Trained, threads: int
) -> AssignOutcome:
    """Do the assign task of a number."""
    return assigning.run_task(
        workspace,
        number,
        workspace.build_plan.assign_tasks[number],
        _trained(workspace, trained),
        threads=threads,
    )


def build_group(runner: Runner, run: RunRef, group: str) -> BuiltGroup:
    """Build the shards of one group, one Spark task each."""
    workspace = Workspace.open(run)
    with at_work(workspace):
        if group not in workspace.build_plan.groups:
            raise StagingError(
                f"run {workspace.build_plan.run_id} has no shard group {group!r}; it has: "
                + ", ".join(workspace.build_plan.groups)
            )
        finished = done(workspace.staging, group_name(group), BuiltGroup)
        if finished:
            log.info("build: group %s done before", group)
            return finished
        return _build_group(runner, workspace, group)


def _build_group(runner: Runner, workspace: Workspace, group: str) -> BuiltGroup:
    began = time.monotonic()
    plan = workspace.build_plan
    shards = plan.groups[group]
    assigned = load(workspace.staging, ASSIGN, Assigned)
    build = partial(
        _build_shard,
        trained=load(workspace.staging, TRAIN, Trained),
        assigned=assigned,
        threads=runner.threads_per_task(len(shards)),
    )
    # Of about as many rows each: how many exactly is in the summary, which may be large.
    rows = [assigned.rows // plan.shard_count] * len(shards)
    size = Size.of_vectors(rows, plan.dimension)
    built = tuple(run_each(runner, workspace.run, build, shards, size=size))
    for shard in built:
        log.info(
            "build: shard %d, %s, %s in %.1f s",
            shard.shard_id,
            counted(shard.rows, "row"),
            counted(shard.bytes, "byte"),
            shard.seconds,
        )
    document = BuiltGroup(shards=built, seconds=time.monotonic() - began)
    return store(workspace.staging, group_name(group), document)


def _build_shard(
    workspace: Workspace, shard: int, *, trained: Trained, assigned: Assigned, threads: int
) -> BuiltShard:
    return build_shard(
        workspace,
        shard,
        _trained(workspace, trained),
        assigned,
        _summary(workspace, assigned),
        algorithm=trained.choice.algorithm,
        threads=threads,
        progress=of_engine(reporter()),
    )


def gate(runner: Runner, run: RunRef) -> Gated:
    """Measure the unpublished index; raise where its recall is under the target.

    Raises:
        RecallTooLowError: it is; nothing is published.
    """
    workspace = Workspace.open(run)
    with at_work(workspace):
        gated = done(workspace.staging, GATE, Gated) or _gate(runner, workspace)
    require_passed(gated, workspace.build_plan.declaration.name)
    log.info(
        "gate: recall@%d %.4f (%.4f to %.4f) over %d queries, target %.2f, search width %d",
        gated.k,
        gated.recall,
        gated.low,
        gated.high,
        gated.queries,
        gated.target,
        gated.search_width,
    )
    return gated


def _gate(runner: Runner, workspace: Workspace) -> Gated:
    measure = partial(
        _measure,
        assigned=load(workspace.staging, ASSIGN, Assigned),
        groups=[
            load(workspace.staging, group_name(group), BuiltGroup)
            for group in workspace.build_plan.groups
        ],
    )
    trained = load(workspace.staging, TRAIN, Trained)
    (gated,) = run_each(runner, workspace.run, measure, [trained])
    return store(workspace.staging, GATE, gated)


def _measure(
    workspace: Workspace, trained: Trained, *, assigned: Assigned, groups: Sequence[BuiltGroup]
) -> Gated:
    """Measure the staged index, and stage what is to be published."""
    seconds = {
        "train": trained.seconds,
        "assign": assigned.seconds,
        "build": sum(group.seconds for group in groups),
    }
    try:
        return run_gate(
            workspace,
            _trained(workspace, trained),
            _summary(workspace, assigned),
            [shard for group in groups for shard in group.shards],
            seconds,
            _figures(trained, assigned, groups),
            algorithm=trained.choice.algorithm,
        )
    except PuffinFormatError as error:  # all Puffin files that it reads were staged
        raise StagingGoneError(f"the staged index cannot be read: {error}") from error


def _figures(trained: Trained, assigned: Assigned, groups: Sequence[BuiltGroup]) -> IndexProperties:
    """Return what the stages counted."""
    noted = IndexProperties().noting(
        skipped=assigned.skipped,
        vector_bytes_read=assigned.vector_bytes_read,
        rates=_rates(assigned, groups),
    )
    trials = trained.choice.trials
    return noted.noting(trials=trials) if trials else noted


def _rates(assigned: Assigned, groups: Sequence[BuiltGroup]) -> Rates:
    """Return how fast rows were read and built, where there were enough of them to tell."""
    rates = Rates()
    if assigned.rows < MEASURED_ROWS:
        return rates
    found = {"read": assigned.rows / assigned.seconds if assigned.seconds else rates.read}
    seconds = sum(shard.seconds for group in groups for shard in group.shards)
    if seconds:
        found["build"] = assigned.rows / seconds
    return rates.model_copy(update=found)


def _trained(workspace: Workspace, trained: Trained) -> TrainResult:
    return arrays_from_bytes(TrainResult, workspace.fetch_bytes(trained.result))


def _summary(workspace: Workspace, assigned: Assigned) -> AssignSummary:
    return arrays_from_bytes(AssignSummary, workspace.fetch_bytes(assigned.summary))
