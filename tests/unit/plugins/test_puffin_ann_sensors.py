"""The sensor for people on a clock."""

from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

import puffin_ann_sensors as sensors
from puffin_ann.errors import DeclarationError


def sensor(**options) -> sensors.IcebergIndexStaleSensor:
    return sensors.IcebergIndexStaleSensor(
        task_id="stale", index="words", poke_interval=7, timeout=60, **options
    )


@pytest.fixture
def found(monkeypatch) -> SimpleNamespace:
    """What the library says of the index; a test may change it."""
    said = SimpleNamespace(is_stale=False, reason="covers 100 %")
    monkeypatch.setattr("puffin_ann.lifecycle.stale.staleness_of", lambda index: said)
    return said


def test_it_waits_in_the_triggerer_as_often_and_as_long_as_it_is_told(found):
    with pytest.raises(TaskDeferred) as deferred:
        sensor().execute({})
    path, arguments = deferred.value.trigger.serialize()
    assert path == "puffin_ann_triggers.IndexStaleTrigger"
    assert arguments == {"index": "words", "poll_interval": 7}
    assert deferred.value.timeout.total_seconds() == 60
    assert hasattr(sensor(), deferred.value.method_name)


def test_where_there_is_nothing_to_wait_for_it_does_not(found):
    found.is_stale = True
    assert sensor().execute({}) is None


def test_without_a_triggerer_it_pokes(found):
    assert sensor(deferrable=False).poke({}) is False
    found.is_stale = True
    assert sensor(deferrable=False).poke({}) is True


def test_what_is_not_declared_is_not_waited_for(monkeypatch):
    def undeclared(index: str) -> None:
        raise DeclarationError(f"no index named {index!r} is declared")

    monkeypatch.setattr("puffin_ann.lifecycle.stale.staleness_of", undeclared)
    with pytest.raises(AirflowFailException, match="'words'"):
        sensor().execute({})


def test_back_from_the_triggerer_it_goes_on_or_fails_for_good():
    assert sensor().resume({}, {"reason": "covers 90 %"}) is None
    with pytest.raises(AirflowFailException, match="is gone"):
        sensor().resume({}, {"error": "the table is gone"})
