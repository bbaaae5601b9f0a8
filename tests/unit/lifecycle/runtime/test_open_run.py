"""A run whose stages follow each other in one process is opened once for them."""

import pickle
from types import SimpleNamespace

import pytest

from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runtime import workspace
from puffin_ann.lifecycle.runtime.workspace import OPEN_SECONDS, OpenRun, Workspace

RUN = RunRef("lake.db.words", "words_index", "run-1", "file:///lake/metadata/_ann-staging")


@pytest.fixture
def loads(monkeypatch):
    """Tables loaded so far, by name; the clock stands at `now`."""
    clock = SimpleNamespace(now=1000.0)
    clock.names = []

    def load(name):
        clock.names.append(name)
        return SimpleNamespace(number=len(clock.names))

    monkeypatch.setattr(workspace, "load_table", load)
    monkeypatch.setattr(workspace.time, "monotonic", lambda: clock.now)
    return clock


def test_a_run_is_opened_anew_by_whoever_has_only_its_name(loads):
    Workspace.open(RUN)
    Workspace.open(RUN)
    assert loads.names == [RUN.table] * 2


def test_an_open_run_is_opened_once_for_all_its_stages_and_their_tasks(loads):
    run = OpenRun.of(RUN)
    stage = Workspace.open(run)
    assert Workspace.open(run) is stage
    assert Workspace.open(stage.run) is stage  # as tasks are given it
    assert loads.names == [RUN.table]


def test_what_the_planning_opened_is_not_opened_again(loads):
    table = SimpleNamespace()
    run = OpenRun.of(RUN, Workspace(table, RUN, opened_at=loads.now))
    stage = Workspace.open(run)
    assert stage.table is table
    assert Workspace.open(stage.run) is stage
    assert loads.names == []


def test_a_table_that_was_loaded_a_while_ago_is_loaded_again(loads):
    run = OpenRun.of(RUN, Workspace(SimpleNamespace(), RUN, opened_at=loads.now))
    loads.now += OPEN_SECONDS
    Workspace.open(run)
    assert loads.names == []
    loads.now += 1
    Workspace.open(run)
    assert loads.names == [RUN.table]


def test_in_another_process_an_open_run_is_its_name(loads):
    run = OpenRun.of(RUN)
    Workspace.open(run)
    sent = pickle.loads(pickle.dumps(run))
    assert type(sent) is RunRef
    assert sent == RUN


def test_a_plan_that_another_attempt_staged_first_is_read_with_its_own_version():
    opened = Workspace(SimpleNamespace(), RUN)
    version = SimpleNamespace(path="newer.puffin")
    assert opened.knowing(SimpleNamespace(base_path="older.puffin"), version) is opened
