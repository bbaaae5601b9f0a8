"""Run the tasks of a stage on a Spark application's executors."""

import json
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, cast
from warnings import catch_warnings, simplefilter

from puffin_ann import errors
from puffin_ann.errors import PuffinAnnError, SparkNotFoundError
from puffin_ann.lifecycle.runtime.progress import current_meter
from puffin_ann.lifecycle.runtime.runners import InProcess, Work
from puffin_ann.lifecycle.spark.session import comes_of_interrupt, stop
from puffin_ann.settings import limit_threads

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator, AccumulatorParam
    from pyspark.sql import SparkSession

log = logging.getLogger("puffin_ann")

NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"[^\n]*?error=\d+, ([^\n]+)')
NAME_PYTHON = (
    "let PYSPARK_PYTHON, or spark.pyspark.python in the declaration's spark.conf, name a Python "
    "that is there where executors run, and has puffin-ann"
)


@dataclass(frozen=True)
class OnSpark:
    """Runs tasks on a Spark application's executors, one Spark task each."""

    spark: "SparkSession"

    def threads_per_task(self, tasks: int) -> int:
        """Return how many threads a task may use without crowding others on its executor.

        Spark gives a task `spark.task.cpus` cores; where a stage has fewer tasks than there are
        cores, the idle ones are shared out.
        """
        context = self.spark.sparkContext
        conf = context.getConf()
        per_task = int(conf.get("spark.task.cpus", "1") or 1)
        cores = max(1, context.defaultParallelism)
        per_executor = int(conf.get("spark.executor.cores", "0") or 0) or cores
        return max(per_task, min(per_executor, cores // max(1, tasks)))

    def here(self) -> InProcess:
        """Return a runner in the driver's process, on the cores that Spark gives the driver."""
        conf = self.spark.sparkContext.getConf()
        if conf.get("spark.master", "").startswith("local"):
            return InProcess(self.threads_per_task(1))
        return InProcess(int(conf.get("spark.driver.cores", "1") or 1))

    def run(self, work: Work, payloads: Sequence[str]) -> list[str]:
        """Run `work` once per payload, and return the answers in order.

        A `PuffinAnnError` on an executor is raised again here as what it was, at once: Spark would
        retry the task and bury the message. What a task warned of is logged here, too. The meter of
        the work learns which tasks are done.

        Raises:
            SparkNotFoundError: workers find no Python, or no puffin-ann in it.
            PuffinAnnError: of the work.
        """
        if not payloads:
            return []

        # Not by a data frame: its workers would import pandas and Arrow before they begin, and each
        # of a run's many small jobs would be planned as a query first.
        context = self.spark.sparkContext
        tasks = context.parallelize(list(enumerate(payloads)), len(payloads))
        collects = cast("AccumulatorParam[frozenset[int]]", _Numbers())
        done = context.accumulator(frozenset[int](), collects)
        meter = current_meter()
        if meter is not None:
            meter.look = lambda: setattr(meter, "done", done.value)
        guarded = partial(_guarded, work, self.threads_per_task(len(payloads)), done)
        try:
            answers = [json.loads(answer) for answer in tasks.map(guarded).collect()]
        except Exception as error:
            missing = missing_in_worker(str(error))
            if missing is None:
                raise
            raise missing from None
        for answer in answers:
            for warning in answer["warnings"]:
                log.warning("%s", warning)
            if "error" in answer:
                raise _error_of(answer["error"], answer["message"])
        return [answer["value"] for answer in answers]


class WhenNeeded:
    """Runs tasks on a Spark session that is started for the first of them: often none is due.

    Args:
        start: returns a new session, and the thread that warms it up.
    """

    def __init__(self, start: "Callable[[], tuple[SparkSession, Thread | None]]") -> None:
        self._start = start
        self._started: tuple[OnSpark, Thread | None] | None = None

    def __enter__(self) -> "WhenNeeded":
        """Return this runner."""
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        """Stop the session, if there is one."""
        if self._started is not None:
            runner, warming = self._started
            self._started = None
            if not comes_of_interrupt(error):
                stop(runner.spark, warming)
                return
            # The call that was broken off may have taken the connection to the JVM with it: PySpark
            # warns of that, or fails. The JVM ends with this process in any case.
            with catch_warnings(), suppress(Exception):
                simplefilter("ignore", RuntimeWarning)
                stop(runner.spark, None)

    def started(self) -> OnSpark:
        """Return the runner on the session, which is started now if it was not before."""
        if self._started is None:
            session, warming = self._start()
            self._started = OnSpark(session), warming
        return self._started[0]

    def run(self, work: Work, payloads: Sequence[str]) -> list[str]:
        """Run `work` once per payload, as `OnSpark` does."""
        return self.started().run(work, payloads) if payloads else []

    def threads_per_task(self, tasks: int) -> int:
        """Return how many threads a task may use, as `OnSpark` does."""
        return self.started().threads_per_task(tasks)

    def here(self) -> InProcess:
        """Return a runner in the driver's process, as `OnSpark` does."""
        return self.started().here()


def missing_in_worker(said: str) -> SparkNotFoundError | None:
    """Return what keeps workers from starting, of what Spark says of a job that failed, if that is.

    Spark's own words are a hundred lines, most of them frames of its threads.
    """
    program = NO_PROGRAM.search(said)
    if program is not None:
        return SparkNotFoundError(
            f"Spark's workers cannot start Python: {program[1]}: {program[2]}; {NAME_PYTHON}"
        )
    if "No module named 'puffin_ann'" in said:
        return SparkNotFoundError(
            f"the Python of Spark's workers has no puffin-ann; install it there, or {NAME_PYTHON}"
        )
    return None


def _guarded(
    work: Work, threads: int, done: "Accumulator[frozenset[int]]", numbered: tuple[int, str]
) -> str:
    number, payload = numbered
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    warnings = _Warnings()
    log.addHandler(warnings)
    try:
        with limit_threads(threads):
            answer = {"value": work(payload)}
    except PuffinAnnError as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    finally:
        log.removeHandler(warnings)
    done.add(frozenset([number]))
    return json.dumps({**answer, "warnings": warnings.texts})


class _Numbers:
    """Collects the numbers of the tasks that are done: what Spark has to know of an accumulator."""

    def zero(self, value: frozenset[int]) -> frozenset[int]:
        """Return what a task begins with."""
        return frozenset()

    def addInPlace(self, one: frozenset[int], other: frozenset[int]) -> frozenset[int]:
        """Return the numbers of both."""
        return one | other


class _Warnings(logging.Handler):
    """Remembers what a task warns of: executors' own logs are far from who started the stage."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Remember a record."""
        self.texts.append(record.getMessage())


def _error_of(name: str, message: str) -> PuffinAnnError:
    kind = getattr(errors, name, PuffinAnnError)
    error: PuffinAnnError = kind(message)
    return error
