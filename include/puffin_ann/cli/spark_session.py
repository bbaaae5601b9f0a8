"""Spark sessions for commands that run stages on one.

What Spark's processes print goes to a file, which is named when something fails: a JVM warns of its
own modules, and Spark of the host's name and its log level, whatever is configured.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from tempfile import mkstemp
from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import EnvironmentProblemError, PuffinAnnError, SparkNotFoundError
from puffin_ann.imports.extras import install_command, is_installed

if TYPE_CHECKING:
    from threading import Thread

    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from puffin_ann.lifecycle.spark.runner import WhenNeeded

END_SECONDS = 10.0
"""How long a JVM may take to end after an interrupt."""

Master = Annotated[str, typer.Option(help="Spark master, such as local[*] or spark://host:7077.")]


def is_for_terminal(record: logging.LogRecord) -> bool:
    """Tell whether a record is for the terminal: all but what an interrupt broke off.

    Py4J logs the call to Spark that was waited for, with two tracebacks.
    """
    from puffin_ann.lifecycle.spark.session import comes_of_interrupt

    return not comes_of_interrupt(record.exc_info[1] if record.exc_info else None)


def require_pyspark() -> None:
    """Make sure that Spark can be started in this process.

    Raises:
        SparkNotFoundError: says what is missing, and how to get it.
    """
    from puffin_ann.lifecycle.spark import session

    session.require_spark(["java"])
    if not is_installed("pyspark"):
        raise SparkNotFoundError(f"pyspark is not installed: {install_command('spark')}")


@contextmanager
def on_spark(
    declaration: IndexDeclaration,
    master: str,
    step: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> "Iterator[WhenNeeded]":
    """Give what runs tasks on a Spark session that it starts for the first of them.

    The start is a `step` of its own. The runner's methods raise as `spark_session` does. The file
    of what Spark printed is removed, but where Spark or a task failed, which is told.
    """
    from puffin_ann.lifecycle.spark.runner import WhenNeeded
    from puffin_ann.lifecycle.spark.session import comes_of_interrupt, warm_up

    printed: list[Path] = []
    earlier = _jvm()

    def start() -> "tuple[SparkSession, Thread]":
        printed.append(_new_log_file())
        with step("start Spark"):
            session = spark_session(declaration, master, printed[0])
        return session, warm_up(session.sparkContext)

    try:
        with WhenNeeded(start) as runner:
            yield runner
    except _SparkStartError:
        printed.clear()  # of which its message tells
        raise
    except PuffinAnnError:
        raise
    except BaseException as error:
        if comes_of_interrupt(error):
            _end_processes(_jvm(), earlier)
        elif isinstance(error, Exception):
            for file in printed:
                typer.echo(f"What Spark printed is in {file}", err=True)
            printed.clear()
        raise
    finally:
        for file in printed:
            file.unlink(missing_ok=True)


class _SparkStartError(EnvironmentProblemError):
    """Spark did not start; the message says where the file is of what it printed."""


def _jvm() -> "Popen[bytes] | None":
    """Return the JVM that PySpark has started in this process, if there is one."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    # There is no process of ours where spark-submit started both.
    return getattr(getattr(context, "_gateway", None), "proc", None)


def _end_processes(jvm: "Popen[bytes] | None", earlier: "Popen[bytes] | None") -> None:
    """Wait until Spark has ended, or end it: who interrupts a command wants its cores back.

    The JVM ends when this process closes the pipe to it, the daemon when the JVM ends, workers when
    the daemon does; each may be at something that it cannot leave.

    Args:
        jvm: to be ended, if there is one.
        earlier: what was there before the command, and is not ended.
    """
    from puffin_ann.lifecycle.spark.daemon_prestart import end_now

    if jvm is None or jvm is earlier:
        return
    if jvm.stdin is not None:
        jvm.stdin.close()
    try:
        jvm.wait(END_SECONDS)
    except TimeoutExpired:
        jvm.kill()
        jvm.wait()
    end_now()


def _new_log_file() -> Path:
    try:
        number, name = mkstemp(prefix="puffin-ann-spark-", suffix=".log")
    except OSError as error:
        raise EnvironmentProblemError(
            f"no file for what Spark prints can be made: {error}"
        ) from None
    os.close(number)
    return Path(name)


def spark_session(declaration: IndexDeclaration, master: str, printed: Path) -> "SparkSession":
    """Return a Spark session with a declaration's configuration; the caller stops it.

    It is started by a thread of its own: PySpark would give the main thread another handler of
    interrupts, which fails while a call to Spark is waited for. And an interrupt waits until the
    JVM is there: PySpark forgets one that it waits for, which then never ends.

    Args:
        declaration: of the index that is worked on.
        master: of Spark.
        printed: file to which the standard streams of the JVM, and of the workers that it starts,
            are appended.

    Raises:
        EnvironmentProblemError: it cannot be started; says why, and names the file.
    """
    from pyspark import SparkConf

    from puffin_ann.lifecycle.spark.daemon_prestart import daemon_ahead
    from puffin_ann.lifecycle.spark.session import worker_conf

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    chosen = declaration.spark.as_conf()
    named = {"spark.master": master, "spark.app.name": f"puffin-ann {declaration.name}"}
    given = {**named, **quiet, **worker_conf(chosen), **chosen}
    try:
        with daemon_ahead(given) as more, ThreadPoolExecutor(1, "puffin-ann-spark") as starting:
            conf = SparkConf().setAll(list({**given, **more}.items()))
            starting.submit(_start_jvm, conf, printed).result()
            return starting.submit(_start_session, conf).result()
    except Exception as error:  # whatever Spark's JVM or its gateway has to say
        lines = str(error).strip().splitlines() or [type(error).__name__]
        # Py4J tells first which call failed, then, after a colon, why.
        reason = next((line[2:] for line in lines if line.startswith(": ")), lines[0])
        raise _SparkStartError(
            f"Spark cannot be started on master {master!r}: {reason}; "
            f"what it printed is in {printed}"
        ) from None


def _start_jvm(conf: "SparkConf", printed: Path) -> None:
    """Start the JVM, unless there is one of an earlier session in this process."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        with printed.open("ab") as file:
            gateway = launch_gateway(conf, {"stdout": file, "stderr": file})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)


def _start_session(conf: "SparkConf") -> "SparkSession":
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    _quieten(SparkContext.getOrCreate(conf))
    session: SparkSession = SparkSession.builder.getOrCreate()
    return session


def _quieten(context: "SparkContext") -> None:
    """Have no traceback printed where the JVM is gone that accumulators are sent from.

    A thread of PySpark's notices that, too, and prints what it met; whoever called Spark is told.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    tell = server.handle_error

    def handle_error(*request: object) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            tell(*request)

    server.handle_error = handle_error
