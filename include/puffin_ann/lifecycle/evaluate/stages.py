"""The stage that measures a published index: brute force on Spark against searches as users do."""

import json
import logging
import time

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from puffin_ann.errors import TooFewRowsError
from puffin_ann.lifecycle.documents.run import AssignTask, BuildPlan, StagedFile, done, store
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.evaluate import ground_truth as truths
from puffin_ann.lifecycle.evaluate.ground_truth import Truth
from puffin_ann.lifecycle.evaluate.measure import RecallMeter
from puffin_ann.lifecycle.evaluate.records import EVALUATION, Evaluation, record
from puffin_ann.lifecycle.ingest import sampling
from puffin_ann.lifecycle.ingest.row_groups import open_part
from puffin_ann.lifecycle.ingest.sampling import SampleTask
from puffin_ann.lifecycle.runtime.runners import Runner
from puffin_ann.lifecycle.runtime.workspace import (
    Workspace,
    arrays_from_bytes,
    arrays_to_bytes,
    at_work,
)
from puffin_ann.moments import now_ms
from puffin_ann.search.index import open_index

log = logging.getLogger("puffin_ann")

MAX_FILES = 64
"""Queries are rows of at most so many data files."""

_STAGED_FILES = TypeAdapter(list[StagedFile])


def evaluate(runner: Runner, run: RunRef) -> Evaluation:
    """Take rows as queries, compare them with every row, search as users do, record the recall."""
    workspace = Workspace.open(run)
    with at_work(workspace):
        finished = done(workspace.staging, EVALUATION, Evaluation) or store(
            workspace.staging, EVALUATION, _evaluate(runner, run)
        )
    record(workspace.table, finished)
    log.info(
        "evaluate: recall@%d %.4f (%.4f to %.4f) over %d queries, target %.2f",
        finished.k,
        finished.recall,
        finished.low,
        finished.high,
        finished.queries,
        finished.target,
    )
    return finished


def _evaluate(runner: Runner, run: RunRef) -> Evaluation:
    began = time.time()
    queries = _sample(runner, run)
    answers = _compare(runner, run, queries)

    def measure(payload: str) -> str:
        there = Workspace.open(run)
        found, answered = _STAGED_FILES.validate_json(payload)
        return _measure(there, found, answered, began).model_dump_json()

    (measured,) = runner.run(measure, [_STAGED_FILES.dump_json([queries, answers]).decode()])
    return Evaluation.model_validate_json(measured)


def query_tasks(plan: BuildPlan) -> list[SampleTask]:
    """Choose the files whose rows are queries, and how many rows of each, by the run's seed."""
    generator = np.random.default_rng(plan.declaration.seed)
    chosen = sorted(generator.permutation(len(plan.files))[:MAX_FILES])
    rows = sum(plan.files[number].rows for number in chosen)
    wanted = plan.declaration.gate.queries
    return [
        SampleTask(int(number), -(-wanted * plan.files[number].rows // rows))
        for number in chosen
        if plan.files[number].rows
    ]


def _sample(runner: Runner, run: RunRef) -> StagedFile:
    """Stage the queries, (q, d) float32, as the only array of an .npz file."""

    def sample(payload: str) -> str:
        task = SampleTask(**json.loads(payload))
        return sampling.sample(Workspace.open(run), task).model_dump_json()

    tasks = query_tasks(Workspace.open(run).build_plan)
    payloads = [json.dumps({"file": task.file, "rows": task.rows}) for task in tasks]
    samples = [StagedFile.model_validate_json(text) for text in runner.run(sample, payloads)]

    def choose(payload: str) -> str:
        there = Workspace.open(run)
        rows = sampling.sampled(there, _STAGED_FILES.validate_json(payload)).vectors
        if not len(rows):
            raise TooFewRowsError(
                f"table {there.build_plan.table} has no usable vector to search for"
            )
        generator = np.random.default_rng([there.build_plan.declaration.seed, 1])
        wanted = min(there.build_plan.declaration.gate.queries, len(rows))
        queries = rows[np.sort(generator.choice(len(rows), wanted, replace=False))]
        staged = there.stage_bytes("queries.npz", arrays_to_bytes(truths.Queries(queries)))
        return staged.model_dump_json()

    (queries,) = runner.run(choose, [_STAGED_FILES.dump_json(samples).decode()])
    return StagedFile.model_validate_json(queries)


def _compare(runner: Runner, run: RunRef, queries: StagedFile) -> StagedFile:
    """Compare every row of the snapshot with every query; stage the exact answers."""
    tasks = Workspace.open(run).build_plan.assign_tasks
    threads = runner.threads_per_task(len(tasks))

    def compare(payload: str) -> str:
        there = Workspace.open(run)
        found = _truth_of(
            there, there.build_plan.assign_tasks[int(payload)], _queries(there, queries), threads
        )
        return there.stage_bytes("truth.npz", arrays_to_bytes(found)).model_dump_json()

    parts = runner.run(compare, [str(number) for number in range(len(tasks))])
    staged = [StagedFile.model_validate_json(part) for part in parts]

    def merge(payload: str) -> str:
        there = Workspace.open(run)
        parts = [
            arrays_from_bytes(Truth, there.fetch_bytes(staged))
            for staged in _STAGED_FILES.validate_json(payload)
        ]
        merged = truths.merged(parts)
        return there.stage_bytes("truth.npz", arrays_to_bytes(merged)).model_dump_json()

    (answers,) = runner.run(merge, [_STAGED_FILES.dump_json(staged).decode()])
    return StagedFile.model_validate_json(answers)


def _truth_of(
    workspace: Workspace, task: AssignTask, queries: NDArray[np.float32], threads: int
) -> Truth:
    plan = workspace.build_plan
    k, metric = plan.declaration.gate.k, plan.declaration.metric
    found = truths.empty(len(queries), k)
    for file, part, parts in task.parts:
        opened = open_part(workspace, plan.files[file], part, parts)
        for row_group in opened.row_groups:
            rows = opened.read(row_group, identities=False).rows
            answers = truths.of_rows(queries, rows, k, metric, threads=threads)
            found = truths.merged([found, answers])
    return found


def _measure(
    workspace: Workspace, queries: StagedFile, answers: StagedFile, began: float
) -> Evaluation:
    plan = workspace.build_plan
    declaration = plan.declaration
    index = open_index(workspace.table, declaration.name, plan.base_snapshot_id)
    routing = index.version.routing
    searched = _queries(workspace, queries)
    meter = RecallMeter(
        searched,
        arrays_from_bytes(Truth, workspace.fetch_bytes(answers)),
        declaration.gate.k,
        {file.file_id: file.path for file in plan.files},
    )
    measure = meter.part(0, len(searched)).measure(
        index, width=routing.search_width, probe_partitions=routing.probe_partitions
    )
    return Evaluation(
        index=declaration.name,
        table=plan.table,
        run_id=plan.run_id,
        version_run_id=routing.properties.get("run-id", ""),
        at_ms=now_ms(),
        snapshot_id=plan.base_snapshot_id,
        base_snapshot_id=index.version.coverage.base_snapshot_id,
        k=declaration.gate.k,
        queries=measure.queries,
        recall=measure.recall,
        low=measure.low,
        high=measure.high,
        target=declaration.recall_target,
        search_width=routing.search_width,
        probe_partitions=routing.probe_partitions,
        coverage=index.view.coverage,
        rows=plan.expected_rows,
        seconds=time.time() - began,
    )


def _queries(workspace: Workspace, staged: StagedFile) -> NDArray[np.float32]:
    return arrays_from_bytes(truths.Queries, workspace.fetch_bytes(staged)).vectors
