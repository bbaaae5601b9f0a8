"""How far an application is, told to a task that does not see what it prints."""

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from puffin_ann.lake.store.staging import Staging
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.runs import told_progress
from puffin_ann.lifecycle.runs.told_progress import following_progress, leaving_progress
from puffin_ann.lifecycle.runtime import progress
from puffin_ann.lifecycle.runtime.progress import metering

NAME = "demo.glove.words"


@pytest.fixture
def run(known_catalogs, tmp_path) -> RunRef:
    places = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    known_catalogs("demo", type="sql", **places)
    catalog = load_catalog("demo")
    catalog.create_namespace("glove")
    made = catalog.create_table("glove.words", schema=pa.schema([("id", pa.int64())]))
    return RunRef.on(made, "words", "run")


@pytest.fixture
def calls(monkeypatch) -> list:
    """What would be called every ten seconds, the newest last."""
    calls = []

    class Ticking:
        def __init__(self, _, call):
            self.call = call

        def __enter__(self):
            calls.append(self.call)

        def __exit__(self, *_):
            calls.remove(self.call)

    monkeypatch.setattr(progress, "every", Ticking)
    monkeypatch.setattr(told_progress, "every", Ticking)
    return calls


def test_the_task_that_waits_is_told_each_line_once(run, calls):
    told = []
    with following_progress(NAME, run.plan, "train.-1.1", told.append):
        (look,) = calls
        look()
        assert told == []
        with leaving_progress(run, "train.-1.1"), metering("sample"):
            calls[-1]()
        look()
        look()
    assert told == ["sample: at work for 0 s"]


def test_lines_of_another_attempt_are_not_told(run, calls):
    told = []
    with leaving_progress(run, "train.-1.1"), metering("sample"):
        calls[-1]()
    with following_progress(NAME, run.plan, "train.-1.2", told.append):
        calls[-1]()
    assert told == []


def test_after_the_work_nobody_is_told_any_more(run, calls):
    with leaving_progress(run, "train.-1.1"):
        pass
    with metering("plan"):
        calls[-1]()
    staging = Staging(load_catalog("demo").load_table("glove.words").io, run.folder)
    assert not staging.exists(progress.FOLDER, "train.-1.1")
