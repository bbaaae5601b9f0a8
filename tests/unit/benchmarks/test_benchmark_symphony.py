"""Which degrees of SymphonyQG are compared with."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import engines, symphony
from benchmarks.data import DataSet
from benchmarks.engines import Timed

ROWS = np.arange(8, dtype=np.float32).reshape(4, 2)
DATA = DataSet("glove-20k", ROWS, ROWS[:1], np.zeros((1, 10), np.int64))
PLACES = [(batch, recall) for batch in (True, False) for recall in (0.90, 0.95, 0.99)]


class FakeIndex:
    """One that can be saved."""

    def __init__(self, degree: int) -> None:
        self.degree = degree

    def save(self, path: str) -> None:
        Path(path).write_text(str(self.degree))


@pytest.fixture
def built(monkeypatch) -> list[int]:
    """Degrees that were built; each is twice as fast as the one before, up to 64."""
    asked: list[int] = []

    def build(_: Any, degree: int) -> tuple[Timed, Any]:
        asked.append(degree)
        return Timed(1.0, 2.0), FakeIndex(degree)

    def rates(made, data, rounds):
        return {
            one.degree: dict.fromkeys(PLACES, {32: 1.0, 64: 2.0}.get(one.degree, 0.5))
            for one in made
        }

    monkeypatch.setattr(engines, "build_symphony", build)
    monkeypatch.setattr(engines, "load_symphony", lambda path: FakeIndex(int(path.read_text())))
    monkeypatch.setattr(symphony, "_rates", rates)
    monkeypatch.setattr(symphony, "version", lambda package: "1")
    monkeypatch.delenv("BENCH_KEPT", raising=False)
    return asked


def test_degrees_are_tried_as_long_as_they_gain(built):
    taken, told = symphony.fastest(DATA, 1)
    assert built == [32, 64, 96]
    assert [one.degree for one in taken] == [64]
    assert "32: 1 / 1 / 1, 64: 2 / 2 / 2, 96: 0 / 0 / 0" in told
    assert told.endswith("compared with: 64")


def test_a_degree_that_is_best_somewhere_stays_behind_the_one_in_the_middle():
    rates = {32: dict.fromkeys(PLACES, 2.0), 64: dict.fromkeys(PLACES, 1.0)}
    rates[64][True, 0.95] = 3.0
    assert symphony.best(rates) == [64, 32]


def test_the_best_are_kept_with_what_was_told_of_them(built, tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_KEPT", str(tmp_path))
    _, told = symphony.fastest(DATA, 1)
    built.clear()

    taken, again = symphony.fastest(DATA, 1)

    assert built == []
    assert [(one.degree, one.index.degree, one.timed) for one in taken] == [
        (64, 64, Timed(1.0, 2.0))
    ]
    assert again == f"{told} (built and raced by an earlier run)"


def test_what_was_kept_of_other_rows_is_not_taken(built, tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_KEPT", str(tmp_path))
    symphony.fastest(DATA, 1)
    built.clear()
    symphony.fastest(DataSet("glove-20k", ROWS + 1, DATA.queries, DATA.truth), 1)
    assert built == [32, 64, 96]
