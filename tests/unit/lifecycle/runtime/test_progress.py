"""What the log tells of work that takes long: how much is done, how fast, and what is left."""

import threading

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.lake.store.staging import Staging
from puffin_ann.lifecycle.runtime import progress
from puffin_ann.lifecycle.runtime.progress import (
    Meter,
    Size,
    current_meter,
    metering,
    reporter,
    task_progress,
)


@pytest.fixture
def staging(tmp_path) -> Staging:
    return Staging(PyArrowFileIO(), f"file://{tmp_path}/_ann-staging/words/run")


class TestLine:
    def test_it_tells_rows_bytes_rates_and_what_is_left(self):
        meter = Meter("assign rows", 4, Size.of_vectors([1000, 1000, 1000, 1000], 25))
        meter.done, meter.shares = {0, 1}, {2: 0.4}
        assert meter.line(20) == (
            "assign rows: 60% done after 20 s; 2 of 4 tasks; 2,400 of 4,000 rows, 120/s; "
            "0.2 of 0.4 MB, 0.0 MB/s; about 13 s left"
        )

    def test_tasks_count_by_what_they_have_to_do(self):
        meter = Meter("apply batch", 2, Size(rows=[9_000, 1_000]), done={1})
        assert "10% done" in meter.line(10)

    def test_without_sizes_tasks_count_alike(self):
        assert Meter("match", 4, done={0}).line(10) == (
            "match: 25% done after 10 s; 1 of 4 tasks; about 30 s left"
        )

    def test_of_one_thing_of_unknown_size_it_tells_the_time(self):
        assert Meter("learn").line(31.2) == "learn: at work for 31 s"

    def test_tasks_without_a_row_count_all_the_same(self):
        assert "50% done" in Meter("apply batch", 2, Size(rows=[0, 0]), done={0}).line(10)

    def test_a_task_that_is_done_counts_once_whatever_it_said_last(self):
        meter = Meter("build shard", 1, Size(rows=[100]), done={0}, shares={0: 0.7})
        assert "100 of 100 rows" in meter.line(10)

    @pytest.mark.parametrize(("said", "counts"), [(-1.0, 0.0), (7.0, 1.0)])
    def test_no_task_can_be_more_than_done(self, said, counts):
        meter = Meter("build shard")
        meter.report_of(0)(said)
        assert meter.shares == {0: counts}


@pytest.fixture
def ticks(monkeypatch):
    """Calls what is called every ten seconds, instead of the clock; returns how."""
    calls = []

    class Ticking:
        def __init__(self, _, call):
            self.call = call

        def __enter__(self):
            calls.append(self.call)

        def __exit__(self, *_):
            calls.remove(self.call)

    monkeypatch.setattr(progress, "every", Ticking)

    def tick() -> None:
        for call in reversed(calls):  # tasks say how far they are before the meter looks
            call()

    return tick


class TestHere:
    def test_a_task_says_how_far_it_is_and_the_log_tells_it(self, ticks, caplog, staging):
        caplog.set_level("INFO")
        with metering("build shard", 2, Size(rows=[100, 100])) as meter:
            with task_progress(meter.key, 0, lambda: staging):
                reporter()(0.5)
                ticks()
            ticks()
        assert caplog.messages[0].startswith("build shard: 25% done")
        assert caplog.messages[1].startswith("build shard: 50% done")
        assert not staging.exists(progress.FOLDER)

    def test_threads_of_a_task_may_say_it(self, staging):
        with metering("build shard") as meter, task_progress(meter.key, 0, lambda: staging):
            report = reporter()
            thread = threading.Thread(target=report, args=(0.25,))
            thread.start()
            thread.join()
            assert meter.shares == {0: 0.25}

    def test_a_task_that_fails_is_not_done(self, staging):
        with (
            pytest.raises(ZeroDivisionError),
            metering("build shard") as meter,
            task_progress(meter.key, 0, lambda: staging),
        ):
            raise ZeroDivisionError
        assert meter.done == ()

    def test_where_nobody_asks_nothing_is_told(self):
        reporter()(0.5)
        assert current_meter() is None

    def test_every_call_of_what_is_decorated_is_told_by_itself(self, ticks, caplog):
        caplog.set_level("INFO")

        @metering("plan")
        def plan() -> Meter | None:
            ticks()
            return current_meter()

        assert plan() is not plan()
        assert caplog.messages == ["plan: at work for 0 s"] * 2


class TestElsewhere:
    """In a process of its own, as Spark's workers are: the task sees no meter."""

    def elsewhere(self, key: str, number: int, share: float, ticks, staging) -> None:
        def work() -> None:
            with task_progress(key, number, lambda: staging):
                reporter()(share)
                ticks()

        thread = threading.Thread(target=work)  # a thread has no meter either
        thread.start()
        thread.join()

    def test_the_meter_reads_what_a_task_put_into_the_staging_folder(self, ticks, caplog, staging):
        caplog.set_level("INFO")
        with metering("build shard", 4, staging=lambda: staging) as meter:
            self.elsewhere(meter.key, 3, 0.8, ticks, staging)
            ticks()
        assert caplog.messages[-1].startswith("build shard: 20% done")

    def test_what_an_earlier_attempt_put_there_does_not_count(self, ticks, caplog, staging):
        caplog.set_level("INFO")
        with metering("build shard", staging=lambda: staging) as first:
            self.elsewhere(first.key, 0, 0.8, ticks, staging)
        with metering("build shard", staging=lambda: staging):
            ticks()
        assert caplog.messages[-1].startswith("build shard: at work for")

    def test_a_short_task_puts_nothing_there(self, staging):
        with task_progress("key", 0, lambda: staging):
            reporter()(0.5)
        assert not staging.exists(progress.FOLDER)

    def test_a_store_that_fails_breaks_no_task(self, monkeypatch):
        asked = threading.Event()

        def gone() -> Staging:
            asked.set()
            raise OSError("the store is silent")

        monkeypatch.setattr(progress, "EVERY_SECONDS", 0.001)
        with task_progress("key", 0, gone):
            assert asked.wait(10)
