"""Lines of builds: the gate's share, packed nodes, a million rows."""

import numpy as np
import pytest

from benchmarks import builds_million
from benchmarks.builds import GATE, Built, Made, gate_row, packed_row
from benchmarks.builds_million import memory_row, slope_row
from benchmarks.data import DataSet
from benchmarks.memory import Spent

ROWS = np.arange(40, dtype=np.float32).reshape(20, 2)
DATA = DataSet("glove-100d", ROWS, ROWS[:1], np.zeros((1, 10), np.int64))


def built(gate: float, others: float) -> Built:
    return Built(gate + others, {"plan": others, GATE: gate})


def spent(seconds: float, above: float = 512.0) -> Spent:
    return Spent(above=above, kept=100.0, seconds=seconds, processor=2 * seconds)


def test_the_build_of_the_middle_share_counts_whole():
    row = gate_row(DATA, [built(1.0, 9.0), built(3.0, 7.0), built(2.0, 8.0)])
    assert (row.ours, row.theirs) == ("2.00 s", "10.00 s")
    assert row.measured == pytest.approx(0.2)
    assert not row.reached
    assert "plan 8.00 s, measure recall 2.00 s" in row.note


def test_a_gate_of_a_tenth_reaches_its_bound():
    assert gate_row(DATA, [built(1.0, 9.0)]).reached


def test_packed_nodes_are_told_in_bytes_a_second():
    row = packed_row(DATA, [Made(10**9, 4.0), Made(10**9, 2.0), Made(10**9, 1.0)])
    assert row.measured == pytest.approx(0.5)
    assert row.reached


def test_the_memory_of_the_largest_build_is_held_to_the_budget():
    row = memory_row({250_000: spent(10, 3000), 1_000_000: spent(40, 1024)}, 384)
    assert row.measured == 1.0
    assert row.theirs == "the vectors 1465 MiB"
    assert row.reached
    assert not memory_row({1_000_000: spent(40, 1600)}, 384).reached


@pytest.mark.parametrize(("seconds", "slope", "reached"), [(40, 1.0, True), (80, 1.5, False)])
def test_seconds_grow_by_a_power_of_the_rows(seconds, slope, reached):
    row = slope_row({250_000: spent(10), 1_000_000: spent(seconds)}, 384)
    assert row.measured == pytest.approx(slope)
    assert row.reached is reached
    assert row.theirs == "40 us a row"


def test_mixed_rows_are_kept_and_found_again(tmp_path, monkeypatch):
    made = []
    monkeypatch.setenv("BENCH_KEPT", str(tmp_path))
    monkeypatch.setattr(builds_million, "load", lambda name: DATA)
    monkeypatch.setattr(builds_million, "build_apart", lambda path, rows, folder: spent(rows))
    monkeypatch.setattr(
        builds_million, "enlarged", lambda vectors, rows, path: made.append(path.touch())
    )
    for _ in range(2):
        result = builds_million.measure("glove-100d", 3, sizes=(10, 40))
    assert len(made) == 1
    assert [row.key for row in result.rows] == ["builds-million-memory", "builds-million-slope"]
