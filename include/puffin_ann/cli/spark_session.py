"""Spark sessions for commands that run stages on one."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from subprocess import Popen, TimeoutExpired
from traceback import walk_tb
from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.cli.spark_stderr import held_back
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import EnvironmentProblemError, SparkNotFoundError

if TYPE_CHECKING:
    from threading import Thread

    from pyspark.sql import SparkSession

    from puffin_ann.lifecycle.spark.runner import WhenNeeded

Master = Annotated[str, typer.Option(help="Spark master, such as local[*] or spark://host:7077.")]


def require_pyspark() -> None:
    """Make sure that Spark can be started in this process.

    Raises:
        SparkNotFoundError: says what is missing, and how to get it.
    """
    from puffin_ann.lifecycle.spark import session

    session.require_spark(["java"])
    if find_spec("pyspark") is None:
        raise SparkNotFoundError("pyspark cannot be imported; install it beside puffin-ann")


def on_spark(
    declaration: IndexDeclaration,
    master: str,
    step: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> "WhenNeeded":
    """Return what runs tasks on a Spark session that it starts for the first; to be closed.

    The start is a `step` of its own. Its methods raise as `spark_session` does.
    """
    from puffin_ann.lifecycle.spark.runner import WhenNeeded
    from puffin_ann.lifecycle.spark.session import warm_up

    def start() -> "tuple[SparkSession, Thread]":
        with step("start Spark"):
            session = spark_session(declaration, master)
        return session, warm_up(session.sparkContext)

    return WhenNeeded(start)


def spark_session(declaration: IndexDeclaration, master: str) -> "SparkSession":
    """Return a Spark session with a declaration's configuration; the caller stops it.

    Raises:
        EnvironmentProblemError: it cannot be started; says why.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from puffin_ann.lifecycle.spark.daemon_prestart import daemon_ahead
    from puffin_ann.lifecycle.spark.session import worker_conf

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    chosen = declaration.spark.conf
    named = {"spark.master": master, "spark.app.name": f"puffin-ann {declaration.name}"}
    conf = {**named, **quiet, **worker_conf(chosen), **chosen}
    try:
        with held_back(), daemon_ahead(conf) as more, _nothing_left_behind():
            with _interrupts_as_before():
                SparkContext.getOrCreate(SparkConf().setAll(list({**conf, **more}.items())))
            session: SparkSession = SparkSession.builder.getOrCreate()
    except Exception as error:  # whatever Spark's JVM or its gateway has to say
        lines = str(error).strip().splitlines() or [type(error).__name__]
        # Py4J tells first which call failed, then, after a colon, why.
        reason = next((line[2:] for line in lines if line.startswith(": ")), lines[0])
        raise EnvironmentProblemError(
            f"Spark cannot be started on master {master!r}: {reason}"
        ) from None
    return session


@contextmanager
def _interrupts_as_before() -> Iterator[None]:
    """Take back the handler that PySpark gives interrupts.

    It asks Spark to cancel its jobs by the connection on which the main thread waits for an answer,
    and both calls fail. The end of the session cancels them all the same.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextmanager
def _nothing_left_behind() -> Iterator[None]:
    """End the JVM that PySpark was waiting for when its start was interrupted, or failed.

    PySpark removes the folder into which the JVM was to write its port and forgets the process. The
    JVM cannot write there, and so never comes to wait for the end of its standard input, by which
    it would notice ours. The frames that the error went through are all that still knows it.
    """
    try:
        yield
    except BaseException as error:
        for frame, _ in walk_tb(error.__traceback__):
            for value in list(frame.f_locals.values()):
                if isinstance(value, Popen) and getattr(value, "pid", None):
                    _end(value)
        raise


def _end(process: "Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(5)
    except TimeoutExpired:
        process.kill()
        process.wait()
