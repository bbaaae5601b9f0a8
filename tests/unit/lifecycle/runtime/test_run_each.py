"""One function for many tasks: what goes to where they run, and what comes back."""

import pickle
from functools import partial

import pytest

from puffin_ann.errors import TooFewRowsError
from puffin_ann.lifecycle.documents.run import StagedFile
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.ingest.sampling import SampleTask
from puffin_ann.lifecycle.runtime.run_each import run_each
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.lifecycle.runtime.workspace import Workspace

RUN = RunRef("demo.glove.words", "words", "run", "file:///words/metadata/_ann-staging")


@pytest.fixture(autouse=True)
def opened(monkeypatch) -> list[RunRef]:
    """The runs whose workspace was opened; no table is loaded."""
    found = []

    def open_workspace(run):
        found.append(run)
        return Workspace(None, run)

    monkeypatch.setattr(Workspace, "open", open_workspace)
    return found


class Elsewhere(InProcess):
    """Sends what it runs through pickle, as Spark does, and keeps what it was given."""

    def run(self, work, payloads):
        self.__dict__["sent"] = (pickle.dumps(work), list(payloads))
        return super().run(pickle.loads(pickle.dumps(work)), payloads)


def stage_sample(workspace: Workspace, task: SampleTask) -> StagedFile:
    return StagedFile(uri=f"{workspace.run.folder}/{task.file}", length=task.rows, sha256="")


def sum_up(workspace: Workspace, files: list[StagedFile]) -> int:
    return sum(file.length for file in files)


def find_even(workspace: Workspace, number: int, *, factor: int) -> StagedFile | None:
    if number % 2:
        return None
    return StagedFile(uri=str(number), length=number * factor, sha256="")


def fail(workspace: Workspace, number: int) -> int:
    raise TooFewRowsError(f"task {number}")


def test_outcomes_come_as_what_they_are_in_the_order_of_the_tasks(opened):
    tasks = [SampleTask(file=file, rows=10 + file) for file in range(3)]
    staged = run_each(InProcess(), RUN, stage_sample, tasks)
    assert staged == [
        StagedFile(uri=f"{RUN.folder}/{file}", length=10 + file, sha256="") for file in range(3)
    ]
    assert run_each(InProcess(), RUN, sum_up, [staged]) == [33]
    assert opened == [RUN] * 4


def test_what_is_bound_by_name_goes_along_with_each_task():
    found = run_each(InProcess(), RUN, partial(find_even, factor=5), range(3))
    assert [file and file.length for file in found] == [0, None, 10]


def test_a_function_and_its_tasks_are_small_on_their_way():
    runner = Elsewhere()
    assert run_each(runner, RUN, stage_sample, [SampleTask(0, 7)])[0].length == 7
    work, payloads = runner.sent
    assert len(work) < 600
    assert payloads == ['0 {"file":0,"rows":7}']


def test_where_there_is_no_task_nothing_is_done(opened):
    assert run_each(InProcess(), RUN, fail, []) == []
    assert opened == []


def test_an_error_of_a_task_is_the_callers():
    with pytest.raises(TooFewRowsError, match="task 4"):
        run_each(InProcess(), RUN, fail, [4])
