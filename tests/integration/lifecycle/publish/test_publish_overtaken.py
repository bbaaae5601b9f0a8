import os
from threading import Barrier, Thread

import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.lifecycle.documents.run import PlanPointer
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.publish import assemble
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runs import build
from puffin_ann.lifecycle.runs.publish import publish
from puffin_ann.lifecycle.runtime.workspace import Workspace
from tests.support.lifecycle import builds
from tests.support.lifecycle.publications import runs_published

QUERIES = np.random.default_rng(3).normal(size=(4, builds.DIMENSION)).astype(np.float32)


def staged(name: str, metric: str) -> PlanPointer:
    plan = build.plan_build(builds.declaration(name=name, metric=metric), run_id=f"run-{name}")
    builds.run_stages(plan)
    return plan


def puffin_files(table) -> list[str]:
    folder = table.location().removeprefix("file://") + "/metadata"
    return [name for name in os.listdir(folder) if name.endswith(".puffin")]


def assert_both_answer(table) -> None:
    current = table.current_snapshot().snapshot_id
    assert [index_status.index for index_status in status(table)] == ["first", "second"]
    for name in ("first", "second"):
        builds.assert_answers(open_index(table, name), table, current, QUERIES, 5)


@pytest.mark.usefixtures("published_by_statistics")
def test_an_index_published_between_assembly_and_commit_is_carried_along(words, monkeypatch):
    first, second = staged("first", "l2"), staged("second", "ip")
    commit, calls = assemble._commit, []

    def overtaken(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            # By one that has no lease, or lost it; calls this function again.
            assemble.publish_run(Workspace.open(RunRef.planned(second)))
        return commit(*arguments)

    monkeypatch.setattr(assemble, "_commit", overtaken)
    publish(RunRef.planned(first))
    assert len(calls) == 3  # the second's, the first's refused one, the first's again
    words.refresh()
    assert_both_answer(words)
    assert len({index_status.file for index_status in status(words)}) == 1
    assert len(puffin_files(words)) == 2  # the file of the refused attempt is gone


@pytest.mark.usefixtures("published_by_statistics")
def test_data_committed_meanwhile_has_the_file_committed_again_not_copied_again(words, monkeypatch):
    plan = staged("first", "l2")
    commit, assembled = assemble._commit, []
    rows, made = iter(range(100, 103)), assemble.assemble

    def late(table, *arguments):
        number = next(rows, None)
        if number is not None:  # somebody adds rows between each look and the commit
            words.refresh().append(builds.rows([number]))
        return commit(table, *arguments)

    def assembling(*arguments, **options):
        assembled.append(made(*arguments, **options))
        return assembled[-1]

    monkeypatch.setattr(assemble, "_commit", late)
    monkeypatch.setattr(assemble, "assemble", assembling)
    publish(RunRef.planned(plan))
    words.refresh()
    assert len(assembled) == 1
    assert puffin_files(words) == [assembled[0].path.rpartition("/")[2]]
    current = words.current_snapshot().snapshot_id
    index = open_index(words, "first")
    assert index.view.rows_to_scan == 3
    builds.assert_answers(index, words, current, QUERIES, 5)


def test_two_runs_that_publish_at_once_both_end_published(words):
    plans = [staged("first", "l2"), staged("second", "ip")]
    start, errors = Barrier(2), []

    def publish_one(plan):
        start.wait()
        try:
            publish(RunRef.planned(plan))
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=publish_one, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    words.refresh()
    assert_both_answer(words)
    for name in ("first", "second"):
        assert runs_published(words, name) == [f"run-{name}"]
