"""How Spark starts the Python workers of our tasks: one place for every session of ours."""

import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from puffin_ann.errors import SparkNotFoundError
from puffin_ann.imports.extras import install_command, is_installed

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger("puffin_ann")

DAEMON_MODULE = "spark.python.daemon.module"
DAEMON = "puffin_ann.lifecycle.spark.worker_daemon"

WARM_UP = "puffin-ann-warm-up"
"""Group of the jobs that only start workers."""

PATIENCE = 30.0
"""Seconds that the end of a session waits for workers that are being started."""


def worker_conf(given: Mapping[str, str]) -> dict[str, str]:
    """Return what to add to a session's configuration, before its context is made.

    Python workers are then forks of a process that has the library imported: see `worker_daemon`.
    Nothing is added where the user chose a daemon, or sends Python files along: Spark shows those
    to a worker's tasks only, and a library among them is not there yet when the daemon starts.

    Args:
        given: the user's own configuration.
    """
    if DAEMON_MODULE in given or given.get("spark.submit.pyFiles"):
        return {}
    return {DAEMON_MODULE: DAEMON}


def warm_up(context: "SparkContext") -> Thread:
    """Have Python workers started while the driver still plans its first tasks.

    Returns the thread that waits for them, which `stop` wants; nobody else has to. The first tasks
    find the workers started, or wait for what is left of their start. If they cannot be started,
    those tasks say so.
    """

    def start() -> None:
        try:
            context.setJobGroup(WARM_UP, "start Python workers")  # of this thread's jobs only
            tasks_at_once = max(1, context.defaultParallelism)
            tasks = context.parallelize(range(tasks_at_once), tasks_at_once)
            tasks.foreach(_nothing)
        except Exception as error:  # also where the session is stopped meanwhile
            log.debug("Python workers were not started ahead of the first task: %s", error)

    thread = Thread(target=start, name="warm-up", daemon=True)
    thread.start()
    return thread


def stop(session: "SparkSession", warming: Thread | None, patience: float = PATIENCE) -> None:
    """Stop a session, once the workers that are being started for it have been.

    Spark prints the failures of tasks that a session's end overtakes, whatever its log level. Where
    no executor is free the wait is given up.

    Args:
        session: to be stopped.
        warming: what `warm_up` returned, if it was called.
        patience: seconds to wait at most.
    """
    try:
        if warming is not None:
            warming.join(patience)
            if warming.is_alive():
                session.sparkContext.cancelJobGroup(WARM_UP)
                warming.join(5)
    finally:
        session.stop()


def comes_of_interrupt(error: BaseException | None) -> bool:
    """Tell whether an error is an interrupt, or of what an interrupt broke off.

    A call to Spark that is broken off leaves a connection in whose answer the next one finds
    nothing: errors follow that are none.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _nothing(_: int) -> None:
    pass


def require_spark(commands: Sequence[str] = ("spark-submit", "java")) -> None:
    """Make sure that Spark can be started here, before anything is read or staged.

    Raises:
        SparkNotFoundError: a command is not on PATH, or PySpark is not whole; says how to get it.
    """
    remedies = {
        "spark-submit": "activate the environment that pyspark is installed in, or put "
        f"$SPARK_HOME/bin on PATH; {install_command('spark')} brings it",
        "java": "Spark needs Java 17 or newer",
    }
    for command in commands:
        if shutil.which(command) is None:
            raise SparkNotFoundError(f"{command} is not on PATH; {remedies[command]}")
    if os.environ.get("SPARK_HOME") is None and is_installed("pyspark"):
        _check_whole()


def _check_whole() -> None:
    """Make sure that PySpark's folder has Spark's classes, and Python code of the same version.

    Airflow's Spark provider depends on pyspark-client, which is the same folder without the
    classes. Where both are installed, the files are those of whichever came last: that is well if
    they are of one version, and else calls classes that are not there.

    Raises:
        SparkNotFoundError: says what is in the folder, and what to install.
    """
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return
    folder = Path(found.origin).parent
    jar = next(folder.glob("jars/spark-core_*.jar"), None)
    if jar is None:
        raise SparkNotFoundError(
            f"{folder} is pyspark-client's, which cannot start Spark: {install_command('spark')}"
        )
    classes = jar.stem.split("-", 2)[2]  # after spark-core_2.13
    code = _version_in(folder / "version.py")
    if classes.split(".")[:2] != code.split(".")[:2]:
        raise SparkNotFoundError(
            f"{folder} has Python code of version {code} and Spark of version {classes}: "
            "pyspark-client, which Airflow's Spark provider brings, has overwritten pyspark. "
            f"Install both in one version: pip install --force-reinstall --no-deps "
            f"pyspark=={code} pyspark-client=={code}"
        )


def _version_in(path: Path) -> str:
    """Return what a module assigns to `__version__`, without importing its package."""
    found = re.search(r"""^__version__\b[^=]*=\s*["']([^"']+)""", path.read_text(), re.MULTILINE)
    return found[1] if found else ""
