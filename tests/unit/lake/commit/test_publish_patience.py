"""How long a catalog is asked what became of a commit: its silence counts once."""

import pytest

from puffin_ann.errors import CatalogUnavailableError, StoreUnavailableError
from puffin_ann.lake.commit import commit_index_file
from puffin_ann.settings import settings


class Clock:
    """Time that goes on only where somebody waits."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(commit_index_file, "time", clock)
    return clock


def asked(clock: Clock, error: Exception, seconds: float) -> int:
    """How often a catalog is asked that fails each time, after some seconds."""
    times = 0

    def ask():
        nonlocal times
        times += 1
        clock.seconds += seconds
        raise error

    with pytest.raises(type(error)):
        commit_index_file._with_patience(ask)
    return times


def test_a_catalog_that_fails_at_once_is_asked_again(clock):
    assert asked(clock, CatalogUnavailableError("no"), 0.0) == commit_index_file.LOOKS


def test_the_silence_of_a_catalog_is_waited_for_once(clock):
    seconds = settings().catalog_seconds
    assert asked(clock, CatalogUnavailableError("no answer"), seconds) == 1
    assert clock.seconds == seconds


def test_a_store_that_was_asked_again_for_long_is_not_asked_again_for_as_long(clock):
    seconds = settings().store_seconds
    assert asked(clock, StoreUnavailableError("no answer"), seconds) == 1
