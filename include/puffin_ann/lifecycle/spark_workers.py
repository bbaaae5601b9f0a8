"""How Spark starts the Python workers of our tasks: one place for every session of ours."""

import logging
from collections.abc import Mapping
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger("puffin_ann")

DAEMON_MODULE = "spark.python.daemon.module"
DAEMON = "puffin_ann.lifecycle.spark_daemon"


def worker_conf(given: Mapping[str, str]) -> dict[str, str]:
    """Return what to add to a session's configuration, before its context is made.

    Python workers are then forks of a process that has the library imported: see `spark_daemon`.
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

    Returns the thread that waits for them; nobody else has to. The first tasks find the workers
    started, or wait for what is left of their start. If they cannot be started, those tasks say so.
    """

    def start() -> None:
        try:
            tasks_at_once = max(1, context.defaultParallelism)
            tasks = context.parallelize(range(tasks_at_once), tasks_at_once)
            tasks.foreach(_nothing)
        except Exception as error:  # also where the session is stopped meanwhile
            log.debug("Python workers were not started ahead of the first task: %s", error)

    thread = Thread(target=start, name="warm-up", daemon=True)
    thread.start()
    return thread


def _nothing(_: int) -> None:
    pass
