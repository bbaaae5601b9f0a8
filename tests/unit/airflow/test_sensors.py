"""The sensors for DAGs of one's own."""

import inspect
import json
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from puffin_ann.airflow import sensors
from puffin_ann.errors import CatalogUnavailableError, DeclarationError

KINDS = {
    sensors.IcebergIndexStaleSensor: "staleness_of",
    sensors.IcebergIndexTombstoneSensor: "tombstones_of",
}
"""Each sensor, and the function of `puffin_ann.lifecycle.report.staleness` that it asks."""


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request) -> type[sensors.IndexSensor]:
    return request.param


@pytest.fixture
def sensor(kind):
    """Make a sensor of the kind."""

    def make(**options) -> sensors.IndexSensor:
        return kind(task_id="wait", index="words", poke_interval=7, timeout=60, **options)

    return make


@pytest.fixture
def found(kind, monkeypatch) -> SimpleNamespace:
    """What the library says of the index; a test may change it."""
    said = SimpleNamespace(is_stale=False, is_due=False, reason="covers 100 %", asked=())

    def answer(*asked: object) -> SimpleNamespace:
        said.asked = asked
        return said

    monkeypatch.setattr(f"puffin_ann.lifecycle.report.staleness.{KINDS[kind]}", answer)
    return said


def test_it_waits_in_the_triggerer_as_often_and_as_long_as_it_is_told(sensor, kind, found):
    with pytest.raises(TaskDeferred) as deferred:
        sensor().execute({})
    path, arguments = deferred.value.trigger.serialize()
    name = kind.__name__.removeprefix("Iceberg").replace("Sensor", "Trigger")
    assert path == f"puffin_ann.airflow.triggers.index.{name}"
    assert arguments.items() >= {"index": "words", "poll_interval": 7}.items()
    assert deferred.value.timeout.total_seconds() == 60
    assert hasattr(sensor(), deferred.value.method_name)


def test_where_there_is_nothing_to_wait_for_it_does_not(sensor, found):
    found.is_stale = found.is_due = True
    assert sensor().execute({}) is None


def test_without_a_triggerer_it_pokes(sensor, found):
    assert sensor(deferrable=False).poke({}) is False
    found.is_stale = found.is_due = True
    assert sensor(deferrable=False).poke({}) is True


def test_what_is_not_declared_is_not_waited_for(sensor, kind, monkeypatch):
    def undeclared(index: str, *_: object) -> None:
        raise DeclarationError(f"no index named {index!r} is declared")

    monkeypatch.setattr(f"puffin_ann.lifecycle.report.staleness.{KINDS[kind]}", undeclared)
    with pytest.raises(AirflowFailException, match="'words'"):
        sensor().execute({})


def test_a_catalog_that_is_down_is_told_without_what_led_to_it_and_asked_again(
    sensor, kind, monkeypatch
):
    def down(index: str, *_: object) -> None:
        raise CatalogUnavailableError("catalog 'demo' does not answer; check it") from OSError()

    monkeypatch.setattr(f"puffin_ann.lifecycle.report.staleness.{KINDS[kind]}", down)
    with pytest.raises(AirflowException, match="check it") as failed:
        sensor().execute({})
    assert failed.value.__suppress_context__
    assert not isinstance(failed.value, AirflowFailException)


def test_back_from_the_triggerer_it_goes_on_or_fails_for_good(sensor):
    assert sensor().resume({}, {"reason": "covers 90 %"}) is None
    with pytest.raises(AirflowFailException, match="is gone"):
        sensor().resume({}, {"error": "the table is gone"})


@pytest.mark.parametrize("kind", [sensors.IcebergIndexTombstoneSensor])
class TestRatio:
    @pytest.mark.parametrize("ratio", [None, 0, 0.1])
    def test_it_is_asked_for_here_and_in_the_triggerer(self, sensor, found, ratio):
        with pytest.raises(TaskDeferred) as deferred:
            sensor(ratio=ratio).execute({})
        assert found.asked == ("words", ratio)
        assert deferred.value.trigger.serialize()[1]["ratio"] == ratio

    @pytest.mark.parametrize("ratio", [-0.1, 1, 20, float("nan")])
    def test_one_that_no_shard_can_pass_is_refused(self, sensor, ratio):
        with pytest.raises(ValueError, match=f"ratio={ratio}"):
            sensor(ratio=ratio)


LOAD_WITH_AIRFLOW = """
import json, sys
from airflow.dag_processing.dagbag import BundleDagBag
bag = BundleDagBag(sys.argv[1], bundle_path=sys.argv[1], bundle_name="own")
print(json.dumps({
    "errors": bag.import_errors,
    "tasks": {dag.dag_id: sorted(dag.task_ids) for dag in bag.dags.values()},
    "triggered": sorted(dag.get_task("go").trigger_dag_id for dag in bag.dags.values()),
}))
"""


@pytest.mark.slow
def test_airflow_loads_the_examples(tmp_path):
    imports = (
        "from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator\n"
        "from airflow.sdk import DAG\n"
        f"from puffin_ann.airflow.sensors import {', '.join(kind.__name__ for kind in KINDS)}\n"
    )
    examples = [example_of(kind) for kind in KINDS]
    (tmp_path / "own.py").write_text(imports + "".join(examples))
    done = subprocess.run(
        [sys.executable, "-c", LOAD_WITH_AIRFLOW, tmp_path],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "errors": {},
        "tasks": {"follow_words_at_night": ["go", "stale"], "rebuild_words": ["due", "go"]},
        "triggered": ["ann_maintain_words", "ann_refresh_words"],
    }


def example_of(kind: type) -> str:
    """Return the example in a docstring: what is indented after its double colon."""
    _, _, after = inspect.getdoc(kind).partition("::\n")
    lines = after.splitlines(keepends=True)
    end = next(i for i, line in enumerate(lines) if line.strip() and not line.startswith("    "))
    return textwrap.dedent("".join(lines[:end]))
