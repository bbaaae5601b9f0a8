"""The stages that do the heavy work: what the Spark applications and the CLI call.

The caller, a Spark driver as a rule, deals out work and collects pointers and counts; vectors pass
through executors and the table's store only. Each stage ends by creating its document, and begins
by looking for it.
"""

import json
import logging
import time
from collections.abc import Sequence

from pydantic import TypeAdapter

from puffin_ann.errors import PuffinFormatError, StagingError, StagingGoneError
from puffin_ann.lifecycle.build import assign as assigning
from puffin_ann.lifecycle.build import auto_algorithm
from puffin_ann.lifecycle.build import train as training
from puffin_ann.lifecycle.build.assign import AssignSummary
from puffin_ann.lifecycle.build.gate import require_passed, run_gate
from puffin_ann.lifecycle.build.shard import build_shard
from puffin_ann.lifecycle.build.train import TrainResult
from puffin_ann.lifecycle.documents.index_properties import RATES, SKIPPED
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
from puffin_ann.lifecycle.ingest.sampling import SampleTask
from puffin_ann.lifecycle.policy.decision import MEASURED_ROWS, Rates
from puffin_ann.lifecycle.runtime.runners import Runner
from puffin_ann.lifecycle.runtime.workspace import (
    Workspace,
    arrays_from_bytes,
    arrays_to_bytes,
    at_work,
)

log = logging.getLogger("puffin_ann")

_STAGED_FILES = TypeAdapter(list[StagedFile])


def train(runner: Runner, run: RunRef) -> Trained:
    """Stage 0: sample the table, train centroids, hold out the gate's queries."""
    workspace = Workspace.open(run)
    with at_work(workspace):
        finished = done(workspace.staging, TRAIN, Trained)
        if finished:
            log.info("train: done before, %d rows sampled", finished.sampled_rows)
            return finished
        return _train(runner, workspace, run)


def _train(runner: Runner, workspace: Workspace, run: RunRef) -> Trained:
    began = time.monotonic()
    tasks = training.sample_tasks(workspace.build_plan)
    if training.is_small(workspace.build_plan, tasks):
        runner = runner.here()
    log.info("train: sampling %d rows of %d files", sum(t.rows for t in tasks), len(tasks))

    def sample(payload: str) -> str:
        task = SampleTask(**json.loads(payload))
        return sampling.sample(Workspace.open(run), task).model_dump_json()

    payloads = [json.dumps({"file": task.file, "rows": task.rows}) for task in tasks]
    samples = [StagedFile.model_validate_json(text) for text in runner.run(sample, payloads)]
    threads = runner.threads_per_task(1)

    def learn(payload: str) -> str:
        there = Workspace.open(run)
        rows = sampling.sampled(there, _STAGED_FILES.validate_json(payload))
        result = training.train(there.build_plan, rows, threads=threads)
        staged = there.stage_bytes("train.npz", arrays_to_bytes(result))
        choice = done(there.staging, CHOICE, Choice) or auto_algorithm.choose(
            there.build_plan,
            rows.vectors,
            training.held_out(there.build_plan, len(rows.vectors)),
            norm_bound=float(result.norm_bound[0]),
            threads=threads,
        )
        store(there.staging, CHOICE, choice)
        return staged.model_dump_json()

    (result,) = runner.run(learn, [_STAGED_FILES.dump_json(samples).decode()])
    trained = Trained(
        result=StagedFile.model_validate_json(result),
        choice=load(workspace.staging, CHOICE, Choice),
        sampled_rows=sum(task.rows for task in tasks),
        seconds=time.monotonic() - began,
    )
    log.info("train: %d centroids in %.1f s", workspace.build_plan.partition_count, trained.seconds)
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


def assign(runner: Runner, run: RunRef) -> Assigned:
    """Stage 1a: read every covered file once, stage its rows grouped by shard."""
    workspace = Workspace.open(run)
    with at_work(workspace):
        finished = done(workspace.staging, ASSIGN, Assigned)
        if finished:
            log.info("assign: done before, %d rows", finished.rows)
            return finished
        return _assign(runner, workspace, run)


def _assign(runner: Runner, workspace: Workspace, run: RunRef) -> Assigned:
    began = time.monotonic()
    trained = load(workspace.staging, TRAIN, Trained)
    tasks = workspace.build_plan.assign_tasks
    threads = runner.threads_per_task(len(tasks))

    def work(payload: str) -> str:
        there = Workspace.open(run)
        number = int(payload)
        outcome = assigning.run_task(
            there,
            number,
            there.build_plan.assign_tasks[number],
            _trained(there, trained),
            threads=threads,
        )
        return outcome.model_dump_json()

    outcomes = [
        AssignOutcome.model_validate_json(text)
        for text in runner.run(work, [str(number) for number in range(len(tasks))])
    ]

    def sum_up(payload: str) -> str:
        there = Workspace.open(run)
        return assigning.summarise(
            there, assigning.OUTCOMES.validate_json(payload)
        ).model_dump_json()

    summing = runner if len(outcomes) > 1 else runner.here()
    (summary,) = summing.run(sum_up, [assigning.OUTCOMES.dump_json(outcomes).decode()])
    document = assigning.assigned(
        workspace.build_plan,
        outcomes,
        StagedFile.model_validate_json(summary),
        time.monotonic() - began,
    )
    log.info(
        "assign: %d rows of %d files in %.1f s; %d deleted, skipped: %s",
        document.rows,
        len(workspace.build_plan.files),
        document.seconds,
        document.deleted,
        document.skipped or "none",
    )
    return store(workspace.staging, ASSIGN, document)


def build_group(runner: Runner, run: RunRef, group: str) -> BuiltGroup:
    """Stage 1b: build the shards of one group, one Spark task each."""
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
        return _build_group(runner, workspace, run, group)


def _build_group(runner: Runner, workspace: Workspace, run: RunRef, group: str) -> BuiltGroup:
    began = time.monotonic()
    shards = workspace.build_plan.groups[group]
    trained = load(workspace.staging, TRAIN, Trained)
    assigned = load(workspace.staging, ASSIGN, Assigned)
    threads = runner.threads_per_task(len(shards))

    def work(payload: str) -> str:
        there = Workspace.open(run)
        summary = arrays_from_bytes(AssignSummary, there.fetch_bytes(assigned.summary))
        return build_shard(
            there,
            int(payload),
            _trained(there, trained),
            assigned,
            summary,
            algorithm=trained.choice.algorithm,
            threads=threads,
        ).model_dump_json()

    built = tuple(
        BuiltShard.model_validate_json(text)
        for text in runner.run(work, [str(shard) for shard in shards])
    )
    for shard in built:
        log.info(
            "build: shard %d, %d rows, %d bytes in %.1f s",
            shard.shard_id,
            shard.rows,
            shard.bytes,
            shard.seconds,
        )
    document = BuiltGroup(shards=built, seconds=time.monotonic() - began)
    return store(workspace.staging, group_name(group), document)


def gate(runner: Runner, run: RunRef) -> Gated:
    """Measure the unpublished index; the run goes on only if its recall reaches the target.

    Raises:
        RecallTooLowError: it does not; nothing is published.
    """
    workspace = Workspace.open(run)
    with at_work(workspace):
        gated = done(workspace.staging, GATE, Gated) or _gate(runner, workspace, run)
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


def _gate(runner: Runner, workspace: Workspace, run: RunRef) -> Gated:
    trained = load(workspace.staging, TRAIN, Trained)
    assigned = load(workspace.staging, ASSIGN, Assigned)
    groups = [
        load(workspace.staging, group_name(group), BuiltGroup)
        for group in workspace.build_plan.groups
    ]
    seconds = {
        "train": trained.seconds,
        "assign": assigned.seconds,
        "build": sum(group.seconds for group in groups),
    }
    figures = {
        SKIPPED: json.dumps(assigned.skipped),
        "vector-bytes-read": str(assigned.vector_bytes_read),
    }
    figures[RATES] = _rates(assigned, groups).model_dump_json()
    if trained.choice.trials:
        figures["trials"] = json.dumps([trial.model_dump() for trial in trained.choice.trials])

    def work(_: str) -> str:
        there = Workspace.open(run)
        summary = arrays_from_bytes(AssignSummary, there.fetch_bytes(assigned.summary))
        shards = [shard for group in groups for shard in group.shards]
        try:
            return run_gate(
                there,
                _trained(there, trained),
                summary,
                shards,
                seconds,
                figures,
                algorithm=trained.choice.algorithm,
            ).model_dump_json()
        except PuffinFormatError as error:  # all Puffin files that it reads were staged
            raise StagingGoneError(f"the staged index cannot be read: {error}") from error

    (result,) = runner.run(work, [""])
    return store(workspace.staging, GATE, Gated.model_validate_json(result))


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
