"""Make staged input again that vanished: orphan removal may run while an index is being built.

No metadata of the table names what a run stages, so whoever removes orphans may take it at any
moment. That is never fatal: a stage that fails looks for what it needs, has the stages before it
make what is gone, from the same plan, and goes on.
"""

import functools
import logging
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, TypeVar

from puffin_ann.lake.store.listing import delete_object
from puffin_ann.lake.store.objects import object_exists
from puffin_ann.lake.store.staging import Staging
from puffin_ann.lifecycle.documents.run import (
    ASSIGN,
    GATE,
    PLAN,
    TRAIN,
    Assigned,
    BuiltGroup,
    Gated,
    StagedFile,
    Trained,
    done,
    group_name,
    restore_plan,
)
from puffin_ann.lifecycle.runtime.heartbeat import alive
from puffin_ann.lifecycle.runtime.runners import Runner
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.search.versions import load_version

log = logging.getLogger("puffin_ann")

ATTEMPTS = 4

P = ParamSpec("P")
R = TypeVar("R")
Stage = Callable[Concatenate[Runner, str, str, P], R]

Again = Callable[[Runner, str, str, str], bool]
"""Makes what a stage of a run needs and what is gone: runner, table, plan, name of the stage; False
if nothing is."""


def remaking(stage: Stage[P, R]) -> Stage[P, R]:
    """Let a stage have its staged input made again where it has vanished; show that it works."""
    return remade(stage, make_again)


def remade(stage: Stage[P, R], again: Again) -> Stage[P, R]:
    """Let a stage have its staged input made again in some way; show that it works."""

    @functools.wraps(stage)
    def run(runner: Runner, table: str, plan: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with alive(Workspace.open(table, plan).staging):
            return attempts(runner, table, plan, *args, **kwargs)

    def attempts(runner: Runner, table: str, plan: str, *args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(ATTEMPTS - 1):
            try:
                return stage(runner, table, plan, *args, **kwargs)
            # Whatever it is called: an error of an executor comes as one of Spark's.
            except Exception as error:
                if not again(runner, table, plan, stage.__name__):
                    raise
                log.warning("%s: %s; its staged input was made again", stage.__name__, error)
        return stage(runner, table, plan, *args, **kwargs)

    return run


def make_again(runner: Runner, table: str, plan: str, stage: str) -> bool:
    """Make what a stage needs and what is gone; False if nothing is."""
    workspace = Workspace.open(table, plan)
    staging = workspace.staging
    made = restore_plan(staging)
    if not staging.exists(PLAN):
        return False
    if stage in ("assign", "build_group", "gate"):
        made |= _train_again(runner, workspace, table, plan)
    if stage in ("build_group", "gate"):
        made |= _assign_again(runner, workspace, table, plan, segments=stage == "build_group")
    if stage == "gate":
        made |= _groups_again(runner, workspace, table, plan)
    if stage == "publish":
        made |= _gate_again(runner, workspace, table, plan)
    return made


def _train_again(runner: Runner, workspace: Workspace, table: str, plan: str) -> bool:
    from puffin_ann.lifecycle.build import stages

    trained = done(workspace.staging, TRAIN, Trained)
    if trained is not None and _are_there(workspace, [trained.result]):
        return False
    # Other centroids than those that rows were assigned by would give wrong radii.
    for name in (TRAIN, ASSIGN, GATE, *map(group_name, workspace.plan.groups)):
        _forget(workspace.staging, name)
    stages.train(runner, table, plan)
    return True


def _assign_again(
    runner: Runner, workspace: Workspace, table: str, plan: str, *, segments: bool
) -> bool:
    from puffin_ann.lifecycle.build import stages

    assigned = done(workspace.staging, ASSIGN, Assigned)
    if assigned is not None:
        needed = [assigned.summary, *(assigned.segments if segments else ())]
        if _are_there(workspace, needed):
            return False
        _forget(workspace.staging, ASSIGN)
    stages.assign(runner, table, plan)
    return True


def _groups_again(runner: Runner, workspace: Workspace, table: str, plan: str) -> bool:
    from puffin_ann.lifecycle.build import stages

    made = False
    for group in workspace.plan.groups:
        built = done(workspace.staging, group_name(group), BuiltGroup)
        if built is not None and _are_there(workspace, [one.file for one in built.shards]):
            continue
        _forget(workspace.staging, group_name(group))
        stages.build_group(runner, table, plan, group)
        made = True
    return made


def _gate_again(runner: Runner, workspace: Workspace, table: str, plan: str) -> bool:
    from puffin_ann.lifecycle.build import stages

    gated = done(workspace.staging, GATE, Gated)
    if gated is not None and all(
        _exists(workspace, uri) for uri in _staged_index(workspace, gated)
    ):
        return False
    _forget(workspace.staging, GATE)
    # The gate looks at every shard, but only fails, and has them made, if it is run.
    stages.gate(runner, table, plan)
    return True


def _staged_index(workspace: Workspace, gated: Gated) -> Iterator[str]:
    """Yield the candidate and, if it is there, the shard files it names."""
    yield gated.candidate.uri
    if _exists(workspace, gated.candidate.uri):
        index = workspace.plan.declaration.name
        version = load_version(workspace.table.io, gated.candidate.uri, index)
        if version is not None:
            yield from (version.file_of(shard) for shard in version.routing.shards)


def _are_there(workspace: Workspace, files: list[StagedFile]) -> bool:
    return all(_exists(workspace, file.uri) for file in files)


def _exists(workspace: Workspace, uri: str) -> bool:
    return object_exists(workspace.table.io, uri)


def _forget(staging: Staging, name: str) -> None:
    delete_object(staging.io, staging.uri(name))
