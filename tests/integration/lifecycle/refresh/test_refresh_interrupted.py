"""Refreshes that are killed, repeated, robbed of what they staged, or overtaken."""

import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.errors import ConflictError, StagingGoneError
from puffin_ann.lake.store.staging import Staging, local_path
from puffin_ann.lifecycle.documents.run import PLAN
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.refresh import stages as refresh_stages
from puffin_ann.lifecycle.runs import publish
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runs.refresh import plan_refresh
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.search.version.versions import find_versions
from tests.support.lifecycle import builds
from tests.support.lifecycle.refreshes import delete_merge_on_read

QUERIES = np.random.default_rng(5).normal(size=(3, builds.DIMENSION)).astype(np.float32)


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


def declared(**changes):
    parameters = builds.PARAMETERS["vamana"]
    return builds.declaration(
        algorithm="vamana", parameters=parameters, recall_target=0.5, **changes
    )


@pytest.fixture
def declaration():
    return declared(refresh={"delta_ratio": 0.0})


@pytest.fixture
def changed(words, declaration):
    """A table with an index, since when rows came, went and moved."""
    builds.build(declaration, "build")
    words.refresh()
    words.delete("id >= 10 and id < 13")
    words.append(builds.rows(range(100, 110)))
    return words.refresh()


def plan(declaration, run_id="run", **options):
    return plan_refresh(declaration, run_id=run_id, force=True, **options)


def stages(pointer):
    """The stages of a refresh, each as often as a task may be run."""
    run = RunRef.planned(pointer)
    yield lambda: refresh_stages.read_changes(InProcess(), run)
    for group in pointer.groups:
        yield lambda group=group: refresh_stages.apply_group(InProcess(), run, group)
    yield lambda: publish.publish(run)


def staging(table, pointer):
    return Staging(table.io, pointer.plan.removesuffix(f"/{PLAN}"))


def run_all(works):
    for stage in works:
        stage()


def assert_published_once(table, runs):
    """One version of the run is published, and it answers as brute force does."""
    table.refresh()
    published = [version.run_id for version in find_versions(table, builds.INDEX).versions]
    assert sorted(published) == sorted(["build", *runs])
    head = table.current_snapshot().snapshot_id
    index = open_index(table, builds.INDEX, head)
    assert (index.view.rows_masked, index.view.rows_to_scan) == (0, 0)
    builds.assert_answers(index, table, head, QUERIES, 5)


def test_every_stage_may_be_run_again(changed, declaration):
    pointer = plan(declaration)
    for stage in stages(pointer):
        assert stage() == stage()
        assert plan(declaration) == pointer
    assert_published_once(changed, ["run"])


@pytest.mark.parametrize("due", ["merge", "rebuild"])
def test_a_run_killed_anywhere_goes_on_and_publishes_once(changed, declaration, monkeypatch, due):
    """Each attempt is killed some writes later than the one before it."""
    if due == "rebuild":
        declaration = declared(refresh={"delta_ratio": 1.0}, rebuild={"tombstone_ratio": 0.1})
        delete_merge_on_read(changed, 6)
    left = [0]

    def counted(write):
        def wrapped(self, *args, **kwargs):
            if "metadata/_ann-staging" in self.root and not left[0]:
                raise Killed
            left[0] -= 1
            return write(self, *args, **kwargs)

        return wrapped

    for name in ("create", "put_new"):
        monkeypatch.setattr(Staging, name, counted(getattr(Staging, name)))
    for attempt in range(60):
        left[0] = attempt
        try:
            pointer = plan(declaration, maintenance=True)
            for stage in stages(pointer):
                stage()
        except Killed:
            continue
        break
    assert 4 < attempt < 59
    assert due in pointer.reason
    assert_published_once(changed, ["run"])


@pytest.mark.parametrize("beginning", ["", "changes", "deleted", "plan"])
def test_a_refresh_whose_staging_vanishes_is_planned_anew(changed, declaration, beginning):
    pointer = plan(declaration)
    first, *later = stages(pointer)
    first()
    for path in local_path(staging(changed, pointer).root).glob(f"{beginning}*"):
        path.unlink()
    with pytest.raises(StagingGoneError, match="again"):
        run_all(later)

    again = plan(declaration)
    run_all(stages(again))

    assert_published_once(changed, [again.run_id])
    assert again.run_id == ("run-2" if beginning else "run")


def test_a_refresh_that_was_overtaken_publishes_nothing(changed, declaration):
    pointer = plan(declaration, "late")
    *before, publish = stages(pointer)
    for stage in before:
        stage()
    refresh_in_process(declaration, run_id="early", force=True)
    with pytest.raises(ConflictError, match="published again"):
        publish()
    assert_published_once(changed, ["early"])


def test_a_refresh_that_is_overtaken_is_planned_anew(changed, declaration, monkeypatch):
    honest, calls = publish.publish, []

    def overtaken(run):
        if not calls:
            calls.append(run)
            changed.append(builds.rows(range(200, 204)))
            refresh_in_process(declaration, run_id="early", force=True)
            changed.refresh().append(builds.rows(range(210, 214)))
        return honest(run)

    monkeypatch.setattr(publish, "publish", overtaken)
    done = refresh_in_process(declaration, run_id="late", force=True)
    assert done["run_id"] == "late-2"
    assert_published_once(changed, ["early", "late-2"])


def test_rows_that_come_during_a_refresh_are_scanned_until_the_next(changed, declaration):
    *before, publish = stages(plan(declaration))
    for stage in before:
        stage()
    changed.append(builds.rows(range(300, 304)))
    publish()
    changed.refresh()
    head = changed.current_snapshot().snapshot_id
    index = open_index(changed, builds.INDEX, head)
    assert (index.view.rows_masked, index.view.rows_to_scan) == (0, 4)
    builds.assert_answers(index, changed, head, QUERIES, 5)


@pytest.mark.usefixtures("published_by_statistics")
def test_another_index_of_the_table_is_carried_along(changed, declaration):
    other = builds.declaration(name="other")
    builds.build(other, "other")
    changed.refresh()
    before = find_versions(changed, "other").versions[0]
    refresh_in_process(declaration, run_id="run", force=True)
    changed.refresh()
    after = find_versions(changed, "other").versions[0]
    assert after.path == find_versions(changed, builds.INDEX).versions[0].path != before.path
    assert after.run_id == before.run_id
    head = changed.current_snapshot().snapshot_id
    builds.assert_answers(open_index(changed, "other", head), changed, head, QUERIES, 5)
