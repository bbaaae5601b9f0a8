"""Make again what a refresh staged and somebody removed; see `build.recovery`."""

from collections.abc import Iterable

from puffin_ann.lake.store.listing import delete_object
from puffin_ann.lake.store.objects import object_exists
from puffin_ann.lifecycle.build.recovery import P, R, Stage, remade
from puffin_ann.lifecycle.documents.refresh import (
    ADDED,
    CHANGES,
    MATCH,
    REMOVED,
    AddedRows,
    AppliedGroup,
    Changes,
    Matched,
    RemovedRows,
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
        for name in (REMOVED, ADDED, MATCH, CHANGES):
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
    removed, added = done(staging, REMOVED, RemovedRows), done(staging, ADDED, AddedRows)
    matched = done(staging, MATCH, Matched)
    files: list[StagedFile | None] = []
    if changes is not None:
        files += [
            changes.summary,
            *changes.segments,
            *(one.relocations for one in changes.relocations),
        ]
        files += [one.dead for one in changes.removed]
        return _are_there(workspace, files)
    if removed is not None:
        files += [removed.prefixes, *(one.dead for one in removed.shards)]
        files += [file for one in removed.shards for file in one.identified]
    if added is not None:
        for task in added.tasks:
            files += [task.outcome.segment, task.outcome.summary, *task.candidates]
    if matched is not None:
        for bucket in matched.buckets:
            files += [bucket.unmatched, *(one.relocations for one in bucket.shards)]
    return _are_there(workspace, files)


def _are_there(workspace: Workspace, files: Iterable[StagedFile | None]) -> bool:
    return all(object_exists(workspace.table.io, file.uri) for file in files if file is not None)


def _forget(workspace: Workspace, name: str) -> None:
    if workspace.staging.exists(name):
        delete_object(workspace.staging.io, workspace.staging.uri(name))
