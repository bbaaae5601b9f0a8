"""Tell in the log how far some work is, every ten seconds: what is done, how fast, what is left.

What is dealt out to tasks has its size, in rows or bytes. A task that is done counts as a whole.
One that works for long says which share of it is done: in this process to the meter itself,
elsewhere by a small object in the run's staging folder, which the meter reads. A short task puts
nothing there.

    with metering("assign", len(tasks), Size(rows=rows_of_tasks)) as meter:  # where work is dealt
        ...
    with task_progress(meter.key, number, staging):  # around a task, wherever it runs
        reporter()(0.25)                       # in the task: a quarter of it is done
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from puffin_ann.lake.store.listing import list_objects
from puffin_ann.lake.store.staging import Staging

log = logging.getLogger("puffin_ann")

EVERY_SECONDS = 10.0
"""Between two lines, and between two objects of a task."""

FOLDER = "_progress"
"""What begins with `_` is hidden from Iceberg's orphan removal."""

Report = Callable[[float], None]
"""Takes the share of a task that is done."""


@dataclass(frozen=True)
class Size:
    """What there is to do.

    Attributes:
        rows: of each task; empty where they are not known, or not what counts.
        bytes: of each task, in the same way.
    """

    rows: Sequence[int] = ()
    bytes: Sequence[int] = ()

    @classmethod
    def of_vectors(cls, rows: Sequence[int], dimension: int) -> "Size":
        """Return the size of tasks that read or index so many rows, with their vectors' bytes."""
        return cls(rows, [4 * dimension * count for count in rows])


@dataclass
class Meter:
    """How much of some work is done.

    Attributes:
        what: is being done, as the log calls it.
        tasks: how many there are.
        size: of them.
        key: by which tasks elsewhere say how far they are.
        done: numbers of the tasks that are done.
        shares: by number, which share of a task is done.
        look: brings `done` up to date where something else counts; called before a line.
    """

    what: str
    tasks: int = 1
    size: Size = field(default_factory=Size)
    key: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    done: Collection[int] = ()
    shares: dict[int, float] = field(default_factory=dict)
    look: Callable[[], None] = lambda: None

    def report_of(self, number: int) -> Report:
        """Return what takes the share of a task that is done."""
        return lambda share: self.shares.update({number: min(1.0, max(0.0, share))})

    def line(self, seconds: float) -> str:
        """Return how far the work is, after so many seconds; of some it is only known how long."""
        if self.tasks == 1 and not (self.shares or self.done or self.size.rows or self.size.bytes):
            return f"{self.what}: at work for {seconds:,.0f} s"
        shares = {**self.shares, **dict.fromkeys(self.done, 1.0)}
        weights = self.size.bytes or self.size.rows
        if not sum(weights):
            weights = [1] * self.tasks
        share = _reached(weights, shares) / sum(weights)
        told = [f"{share:.0%} done after {seconds:,.0f} s"]
        if self.tasks > 1:
            told.append(f"{len(self.done):,} of {self.tasks:,} tasks")
        if self.size.rows:
            rows = _reached(self.size.rows, shares)
            told.append(f"{rows:,.0f} of {sum(self.size.rows):,} rows, {rows / seconds:,.0f}/s")
        if self.size.bytes:
            size = _reached(self.size.bytes, shares) / 1e6
            whole = sum(self.size.bytes) / 1e6
            told.append(f"{size:,.1f} of {whole:,.1f} MB, {size / seconds:,.1f} MB/s")
        if 0 < share < 1:
            told.append(f"about {seconds * (1 - share) / share:,.0f} s left")
        return f"{self.what}: {'; '.join(told)}"


def _reached(sizes: Sequence[int], shares: dict[int, float]) -> float:
    return sum(sizes[number] * share for number, share in shares.items())


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)
"""Of the work that this thread deals out."""

_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)
"""Gets the lines on the work that this thread deals out, beside the log."""

_REPORT: ContextVar[Report | None] = ContextVar("report", default=None)
"""Of the task that this thread does."""


def current_meter() -> Meter | None:
    """Return the meter of the work that this thread deals out."""
    return _METER.get()


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Have something get the lines on the body's work, beside the log."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def reporter() -> Report:
    """Return what takes the share that is done of this thread's task; any thread may call it."""
    return _REPORT.get() or (lambda _: None)


@contextmanager
def metering(
    what: str,
    tasks: int = 1,
    size: Size | None = None,
    staging: Callable[[], Staging] | None = None,
) -> Iterator[Meter]:
    """Tell how far some work is for as long as the body does it. Also a decorator.

    Args:
        what: is being done.
        tasks: how many there are.
        size: of them, where it is known.
        staging: returns the run's folder, where tasks of other processes say how far they are.
    """
    meter, listener = Meter(what, tasks, size or Size()), _LISTENER.get()
    began = time.monotonic()

    def tell() -> None:
        meter.look()
        if staging is not None:
            _read_shares(meter, staging())
        line = meter.line(time.monotonic() - began)
        log.info("%s", line)
        if listener is not None:
            listener(line)

    token = _METER.set(meter)
    try:
        with every(EVERY_SECONDS, tell):
            yield meter
    finally:
        _METER.reset(token)


@contextmanager
def task_progress(key: str, number: int, staging: Callable[[], Staging]) -> Iterator[None]:
    """Have the `reporter` of a task tell the meter, in this process or another, how far it is.

    Args:
        key: of the meter.
        number: of the task.
        staging: returns the run's folder.
    """
    meter = _METER.get()
    if meter is not None and meter.key == key:
        with _reporting(meter.report_of(number)):
            yield
        meter.done = {*meter.done, number}
        return
    latest = Meter("")
    name = f"{FOLDER}/{key}/{number}"
    with (
        _reporting(latest.report_of(0)),
        every(
            EVERY_SECONDS, lambda: staging().put(name, f"{latest.shares.get(0, 0.0):.4f}".encode())
        ),
    ):
        yield


def _read_shares(meter: Meter, staging: Staging) -> None:
    """Read how far the tasks are that work elsewhere and are not done."""
    folder = staging.uri(FOLDER, meter.key)
    for stored in list_objects(staging.io, folder):
        number = stored.uri.rpartition("/")[2]
        if number.isdecimal() and int(number) not in meter.done:
            meter.shares[int(number)] = float(staging.read(FOLDER, meter.key, number))


@contextmanager
def _reporting(report: Report) -> Iterator[None]:
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)


@contextmanager
def every(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    """Call something again and again, in a thread of its own, while the body works."""
    ended = threading.Event()

    def call_on() -> None:
        while not ended.wait(seconds):
            try:
                call()
            except Exception as error:  # the work itself may well go on
                log.debug("no progress is told: %s", error)

    thread = threading.Thread(target=call_on, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
