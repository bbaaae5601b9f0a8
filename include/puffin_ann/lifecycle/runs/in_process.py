"""Do every stage of a refresh, or of the build that is due instead, one after the other."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import ConflictError, DataFileError, FormatError, StagingGoneError
from puffin_ann.lifecycle.build import stages
from puffin_ann.lifecycle.documents.run import PlanPointer, PublishedVersion
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.refresh import stages as refresh_stages
from puffin_ann.lifecycle.runs import publish
from puffin_ann.lifecycle.runs.refresh import plan_and_open
from puffin_ann.lifecycle.runtime.runners import InProcess, Runner
from puffin_ann.lifecycle.runtime.workspace import OpenRun, Workspace

log = logging.getLogger("puffin_ann")

ATTEMPTS = 3
"""Times that a run is planned, if others publish meanwhile or remove its staging."""


OUTCOME = ("snapshot_id", "bytes_written", "bytes_copied", "rows_added", "rows_gone", "undone")
"""What is returned of a published version."""

Progress = Callable[[str], AbstractContextManager[None]]
"""Told the name of a step, which lasts as long as the context."""


def refresh_in_process(
    declaration: IndexDeclaration,
    *,
    run_id: str,
    maintenance: bool = False,
    force: bool = False,
    repair: bool = False,
    postpones: bool = False,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Refresh an index, or build it where that is due, stage by stage.

    Args:
        declaration: the index.
        run_id: names the run.
        maintenance: as of `runs.refresh.plan_refresh`.
        force: as above.
        repair: make again what is damaged, and do nothing else that is due; never build.
        postpones: a build, merge or rebuild that is due waits: mask, and add deltas.
        runner: where the stages' tasks run; default: in this process.
        progress: told what is done.

    Returns:
        `action`, `reason`, `run_id`, and what was published: `snapshot_id`, `bytes_written`,
        `bytes_copied`, and `rows_added` and `rows_gone` as they were found, of which the reason
        tells what was expected; `undone`, what was to be done to shards and would have lost recall,
        empty if nothing was; None where nothing was published.

    Raises:
        ConflictError: others published into the table during every attempt.
        StagingGoneError: what was staged was removed during every attempt.
        FormatError: something is damaged that no refresh repairs.
        PuffinAnnError: see the stages.
    """
    step = progress or (lambda _: nullcontext())
    published: PublishedVersion | None = None
    damage: FormatError | None = None
    for attempt in range(1, ATTEMPTS + 1):
        attempt_run_id = run_id if attempt == 1 else f"{run_id}-{attempt}"
        with step("plan"):
            plan, workspace = plan_and_open(
                declaration,
                run_id=attempt_run_id,
                maintenance=maintenance,
                force=force,
                repair=repair,
                postpones=postpones,
                verify=damage is not None,
            )
        if plan.action == "none":
            break
        if damage is not None and not _repairs(plan, workspace):
            raise damage
        run = OpenRun.of(RunRef.planned(plan), workspace)
        try:
            published = _carry_out(plan, run, runner or InProcess(), step)
        except DataFileError:
            raise
        except (ConflictError, StagingGoneError, FormatError) as error:
            publish.clear_staging(run)
            if isinstance(error, FormatError):
                if damage is not None or plan.action != "refresh":
                    raise
                damage = error
            if attempt == ATTEMPTS:
                raise
            log.warning("refresh: %s; planning it again", error)
            continue
        break
    return {
        "action": plan.action,
        "reason": plan.reason,
        "run_id": plan.run_id,
        **{name: getattr(published, name, None) for name in OUTCOME},
    }


def _repairs(plan: PlanPointer, workspace: Workspace | None) -> bool:
    """Tell whether a plan makes anew what is damaged."""
    if plan.action != "refresh":
        return True
    if workspace is None:
        return False
    decision = workspace.refresh_plan.decision
    return bool(decision.unreadable) or decision.remakes_cells


def _carry_out(plan: PlanPointer, run: RunRef, runner: Runner, step: Progress) -> PublishedVersion:
    works: Sequence[tuple[str, Callable[[], Any]]]
    if plan.action == "refresh":
        works = (
            ("read changes", lambda: refresh_stages.read_changes(runner, run)),
            ("apply them", lambda: _each(plan, run, refresh_stages.apply_group, runner)),
        )
    else:
        works = (
            ("train centroids", lambda: stages.train(runner, run)),
            ("assign rows", lambda: stages.assign(runner, run)),
            ("build shards", lambda: _each(plan, run, stages.build_group, runner)),
            ("measure recall", lambda: stages.gate(runner, run)),
        )
    for name, work in works:
        with step(name):
            work()
    with step("publish"):
        published = publish.publish(run)
    publish.clear_staging(run)
    return published


def _each(
    plan: PlanPointer,
    run: RunRef,
    stage: Callable[[Runner, RunRef, str], object],
    runner: Runner,
) -> None:
    for group in plan.groups:
        stage(runner, run, group)
