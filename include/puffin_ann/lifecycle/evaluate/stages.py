"""The stage that measures a published index: brute force on Spark against searches as users do."""

import logging
import time
from functools import partial

import numpy as np
from numpy.typing import NDArray

from puffin_ann.errors import TooFewRowsError
from puffin_ann.lifecycle.documents.run import AssignTask, BuildPlan, StagedFile, done, store
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.evaluate import ground_truth as truths
from puffin_ann.lifecycle.evaluate.ground_truth import Truth
from puffin_ann.lifecycle.evaluate.measure import RecallMeter
from puffin_ann.lifecycle.evaluate.records import EVALUATION, Evaluation, record
from puffin_ann.lifecycle.ingest import sampling
from puffin_ann.lifecycle.ingest.row_groups import open_row_groups
from puffin_ann.lifecycle.ingest.sampling import SampleTask
from puffin_ann.lifecycle.runtime.progress import Size
from puffin_ann.lifecycle.runtime.run_each import run_each
from puffin_ann.lifecycle.runtime.runners import Runner
from puffin_ann.lifecycle.runtime.workspace import (
    Workspace,
    arrays_from_bytes,
    arrays_to_bytes,
    at_work,
)
from puffin_ann.moments import now_ms
from puffin_ann.search.open_index import open_index

log = logging.getLogger("puffin_ann")

MAX_FILES = 64
"""Queries are rows of at most so many data files."""


def evaluate(runner: Runner, run: RunRef) -> Evaluation:
    """Take rows as queries, compare them with every row, search as users do, record the recall."""
    workspace = Workspace.open(run)
    with at_work(workspace):
        finished = done(workspace.staging, EVALUATION, Evaluation) or store(
            workspace.staging, EVALUATION, _evaluate(runner, workspace)
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


def _evaluate(runner: Runner, workspace: Workspace) -> Evaluation:
    began = time.time()
    queries = _sample(runner, workspace)
    answers = _compare(runner, workspace, queries)
    measure = partial(_measure, answers=answers, began=began)
    (measured,) = run_each(runner, workspace.run, measure, [queries])
    return measured


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


def _sample(runner: Runner, workspace: Workspace) -> StagedFile:
    """Stage the queries, (q, d) float32, as the only array of a file of arrays."""
    run = workspace.run
    samples = run_each(runner, run, sampling.sample, query_tasks(workspace.build_plan))
    (queries,) = run_each(runner, run, _choose, [samples])
    return queries


def _choose(workspace: Workspace, samples: list[StagedFile]) -> StagedFile:
    """Stage as many rows of the samples as there are to be queries."""
    plan = workspace.build_plan
    rows = sampling.read_samples(workspace, samples).vectors
    if not len(rows):
        raise TooFewRowsError(f"table {plan.table} has no usable vector to search for")
    generator = np.random.default_rng([plan.declaration.seed, 1])
    wanted = min(plan.declaration.gate.queries, len(rows))
    queries = rows[np.sort(generator.choice(len(rows), wanted, replace=False))]
    return workspace.stage_bytes("queries.arrays", arrays_to_bytes(truths.Queries(queries)))


def _compare(runner: Runner, workspace: Workspace, queries: StagedFile) -> StagedFile:
    """Compare every row of the snapshot with every query; stage the exact answers."""
    run = workspace.run
    tasks = range(len(workspace.build_plan.assign_tasks))
    threads = runner.threads_per_task(len(tasks))
    answer = partial(_answer, queries=queries, threads=threads)
    plan = workspace.build_plan
    size = Size.of_vectors([plan.rows_of(task) for task in plan.assign_tasks], plan.dimension)
    parts = run_each(runner, run, answer, tasks, size=size)
    (answers,) = run_each(runner, run, _merge, [parts])
    return answers


def _answer(workspace: Workspace, number: int, *, queries: StagedFile, threads: int) -> StagedFile:
    """Stage the exact answers among the rows of one task."""
    task = workspace.build_plan.assign_tasks[number]
    found = _truth_of(workspace, task, _queries(workspace, queries), threads)
    return workspace.stage_bytes("truth.arrays", arrays_to_bytes(found))


def _merge(workspace: Workspace, parts: list[StagedFile]) -> StagedFile:
    """Stage the exact answers of all tasks together."""
    found = [arrays_from_bytes(Truth, workspace.fetch_bytes(part)) for part in parts]
    return workspace.stage_bytes("truth.arrays", arrays_to_bytes(truths.merge(found)))


def _truth_of(
    workspace: Workspace, task: AssignTask, queries: NDArray[np.float32], threads: int
) -> Truth:
    plan = workspace.build_plan
    k, metric = plan.declaration.gate.k, plan.declaration.metric
    found = truths.empty(len(queries), k)
    for file, part, parts in task.parts:
        opened = open_row_groups(workspace, plan.files[file], part, parts)
        for row_group in opened.row_groups:
            rows = opened.read(row_group, identities=False).rows
            answers = truths.of_rows(queries, rows, k, metric, threads=threads)
            found = truths.merge([found, answers])
    return found


def _measure(
    workspace: Workspace, queries: StagedFile, *, answers: StagedFile, began: float
) -> Evaluation:
    plan = workspace.build_plan
    declaration = plan.declaration
    index = open_index(workspace.table, declaration.name, plan.base_snapshot_id, cache="full")
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
        version_run_id=routing.run_id,
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
