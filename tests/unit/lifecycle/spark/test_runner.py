"""Tasks on Spark: their order, their errors, and their threads."""

import logging

import pytest

from puffin_ann.errors import RecallTooLowError
from puffin_ann.lifecycle.runtime.progress import metering
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.lifecycle.spark.runner import OnSpark, WhenNeeded, missing_in_worker
from puffin_ann.lifecycle.spark.session import PATIENCE
from puffin_ann.settings import settings


class Sum:
    """As much of an accumulator as tasks of this process need."""

    def __init__(self, value, param) -> None:
        self.value, self._param = value, param

    def add(self, more) -> None:
        self.value = self._param.addInPlace(self.value, more)


class LocalContext:
    """As much of a Spark context as deals out tasks, on a machine of `cores`."""

    def __init__(self, cores: int, **conf: str) -> None:
        self.defaultParallelism = cores
        self._conf = conf
        self.sparkContext = self

    def getConf(self):
        return self

    def get(self, name, default):
        return self._conf.get(name.replace(".", "_"), default)

    def accumulator(self, value, param):
        return Sum(value, param)

    def parallelize(self, items, parts):
        assert parts == len(items)
        self._items = items
        return self

    def map(self, work):
        self._items = [work(item) for item in self._items]
        return self

    def collect(self):
        return self._items


@pytest.mark.parametrize(("cores", "tasks", "threads"), [(16, 1, 16), (16, 4, 4), (2, 8, 1)])
def test_a_task_uses_the_threads_that_spark_gives_it(monkeypatch, cores, tasks, threads):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    before = settings().thread_count
    seen = OnSpark(LocalContext(cores)).run(lambda _: str(settings().thread_count), ["x"] * tasks)
    assert seen == [str(threads)] * tasks
    assert settings().thread_count == before


def test_answers_come_in_the_order_of_the_payloads():
    given = [str(number) for number in range(7)]
    assert OnSpark(LocalContext(2)).run(lambda payload: payload + "!", given) == [
        text + "!" for text in given
    ]
    assert OnSpark(LocalContext(2)).run(lambda payload: payload, []) == []


def test_the_meter_learns_which_tasks_are_done():
    with metering("work", 3) as meter:
        OnSpark(LocalContext(2)).run(lambda payload: payload, ["a", "b", "c"])
        assert meter.done == ()
        meter.look()
        assert meter.done == {0, 1, 2}


def test_work_in_the_driver_uses_the_cores_that_spark_gives_the_driver(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    for context, threads in [
        (LocalContext(4, spark_master="local[4]"), 4),
        (LocalContext(400, spark_master="spark://host:7077"), 1),
        (LocalContext(400, spark_master="yarn", spark_driver_cores="3"), 3),
    ]:
        here = OnSpark(context).here()
        assert here.threads_per_task(1) == threads
        assert here.run(lambda _: str(settings().thread_count), ["x"]) == [str(threads)]
    assert InProcess().here() == InProcess()


def test_an_error_of_ours_comes_back_as_what_it_was():
    def work(payload: str) -> str:
        raise RecallTooLowError(f"too low: {payload}")

    with pytest.raises(RecallTooLowError, match="too low: a"):
        OnSpark(LocalContext(2)).run(work, ["a", "b"])


class Sessions:
    """Counts the sessions started and stopped."""

    def __init__(self, warming=None) -> None:
        self.seen: list[str] = []
        self.warming = warming

    def start(self):
        self.seen.append("start")
        session = LocalContext(2, spark_master="local[2]")
        session.stop = lambda: self.seen.append("stop")
        return session, self.warming


def test_a_session_that_no_task_needs_is_neither_started_nor_stopped():
    sessions = Sessions()
    with WhenNeeded(sessions.start) as runner:
        assert runner.run(lambda payload: payload, []) == []
    assert sessions.seen == []


def test_a_session_is_started_once_and_stopped_where_a_stage_fails():
    def stage(runner):
        assert runner.threads_per_task(1) == 2
        assert runner.run(lambda payload: payload + "!", ["a", "b"]) == ["a!", "b!"]
        assert runner.here() == InProcess(2)
        raise RecallTooLowError("too low")

    sessions = Sessions()
    with pytest.raises(RecallTooLowError), WhenNeeded(sessions.start) as runner:
        stage(runner)
    assert sessions.seen == ["start", "stop"]


@pytest.mark.parametrize(
    ("error", "waited"), [(KeyboardInterrupt, []), (RecallTooLowError, [PATIENCE])]
)
def test_a_session_waits_for_its_workers_to_start_unless_it_is_interrupted(error, waited):
    class Warming:
        def join(self, seconds):
            waits.append(seconds)

        def is_alive(self):
            return False

    def stage(runner):
        runner.threads_per_task(1)
        raise error

    waits = []
    sessions = Sessions(Warming())
    with pytest.raises(error), WhenNeeded(sessions.start) as runner:
        stage(runner)
    assert (sessions.seen, waits) == (["start", "stop"], waited)


def test_an_interrupt_is_told_as_one_though_the_session_cannot_be_stopped_after_it():
    def stage(runner):
        runner.threads_per_task(1)
        raise KeyboardInterrupt

    class Broken(Sessions):
        def start(self):
            session, warming = super().start()
            session.stop = self.stop
            return session, warming

        def stop(self):
            self.seen.append("stop")
            raise ConnectionError("Answer from Java side is empty")

    sessions = Broken()
    with pytest.raises(KeyboardInterrupt), WhenNeeded(sessions.start) as runner:
        stage(runner)
    assert sessions.seen == ["start", "stop"]


def test_what_a_task_warns_of_is_logged_where_the_stage_is(caplog):
    def work(payload: str) -> str:
        logging.getLogger("puffin_ann").warning("odd: %s", payload)
        logging.getLogger("puffin_ann").info("even: %s", payload)
        if payload == "b":
            raise RecallTooLowError("too low")
        return payload

    class Elsewhere(LocalContext):
        def collect(self):
            caplog.clear()  # what executors log themselves
            return super().collect()

    with pytest.raises(RecallTooLowError):
        OnSpark(Elsewhere(2)).run(work, ["a", "b"])
    assert caplog.messages == ["odd: a", "odd: b"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException"
            ': aborted: java.io.IOException: Cannot run program "/opt/missing/python": error=2, '
            "No such file or directory\n\tat java.base/java.lang.ProcessBuilder.start",
            "cannot start Python: /opt/missing/python: No such file or directory; let",
        ),
        (
            "PythonException: Traceback\nModuleNotFoundError: No module named 'puffin_ann'\n\tat x",
            "the Python of Spark's workers has no puffin-ann; install it there",
        ),
    ],
)
def test_workers_without_python_or_puffin_ann_are_told_in_a_sentence(said, told):
    missing = missing_in_worker(said)
    assert told in str(missing)
    assert "\n" not in str(missing)
    assert missing_in_worker("java.lang.OutOfMemoryError: Java heap space") is None
