"""Make again what a refresh staged and somebody removed; see `build.recovery`."""

from collections.abc import Iterable

from puffin_ann.lake.store.listing import delete_object
from puffin_ann.lake.store.objects import object_exists
from puffin_ann.lifecycle.build.recovery import P, R, Stage, remade
from puffin_ann.lifecycle.documents.refresh import (
    CHANGES,
    COME,
    GONE,
    MATCH,
    AppliedGroup,
    Changes,
    Come,
    Gone,
    Matched,
    applied_name,
)
from puffin_ann.lifecycle.documents.run import StagedFile, done
from puffin_ann.lifecycle.runtime.runners import Runner
from puffin_ann.lifecycle.runtime.workspace import Workspace


def remaking_refresh(stage: Stage[P, R]) -> Stage[P, R]:
    """Let a stage of a refresh have its staged input made again; show that it works."""
    return remade(stage, make_refresh_again)


def make_refresh_again(runner: Runner, table: str, plan: str, stage: str) -> bool:
    """Make what a stage needs and what is gone; False if nothing is.

    What was read is read again in the same order, so that shards that were made rest on the same.
    """
    from puffin_ann.lifecycle.refresh import stages

    workspace = Workspace.open(table, plan)
    is_read = stage == "read_changes" or done(workspace.staging, CHANGES, Changes) is not None
    if is_read and _whole(workspace):
        made = False
    else:
        for name in (GONE, COME, MATCH, CHANGES):
            _forget(workspace, name)
        if stage != "read_changes":
            stages.read_changes(runner, table, plan)
        made = True
    if stage == "publish":
        for group in workspace.refresh.groups:
            applied = done(workspace.staging, applied_name(group), AppliedGroup)
            files = [one.file for one in applied.shards if one.file] if applied else []
            if applied is not None and _are_there(workspace, files):
                continue
            _forget(workspace, applied_name(group))
            stages.apply_group(runner, table, plan, group)
            made = True
    return made


def _whole(workspace: Workspace) -> bool:
    """Tell whether everything is there that the documents of reading name.

    The last document names all that shards are made of. Before it is there, what it rests on must.
    """
    staging = workspace.staging
    changes = done(staging, CHANGES, Changes)
    gone, come = done(staging, GONE, Gone), done(staging, COME, Come)
    matched = done(staging, MATCH, Matched)
    files: list[StagedFile | None] = []
    if changes is not None:
        files += [changes.summary, *changes.segments, *(one.moves for one in changes.moves)]
        files += [one.dead for one in changes.gone]
        return _are_there(workspace, files)
    if gone is not None:
        files += [gone.known, *(one.dead for one in gone.shards)]
        files += [file for one in gone.shards for file in one.identified]
    if come is not None:
        for task in come.tasks:
            files += [task.outcome.segment, task.outcome.summary, *task.candidates]
    if matched is not None:
        for bucket in matched.buckets:
            files += [bucket.left, *(one.moves for one in bucket.shards)]
    return _are_there(workspace, files)


def _are_there(workspace: Workspace, files: Iterable[StagedFile | None]) -> bool:
    return all(object_exists(workspace.table.io, file.uri) for file in files if file is not None)


def _forget(workspace: Workspace, name: str) -> None:
    if workspace.staging.exists(name):
        delete_object(workspace.staging.io, workspace.staging.uri(name))
