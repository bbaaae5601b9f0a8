"""What the applications of `puffin_ann.spark_apps` share: arguments, session, lease, exit code."""

import argparse
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING

from puffin_ann import application_lines
from puffin_ann.errors import PuffinAnnError, RecallTooLowError
from puffin_ann.lifecycle.spark.daemon_prestart import daemon_ahead
from puffin_ann.lifecycle.spark.import_path import prefer_folders
from puffin_ann.lifecycle.spark.session import stop, warm_up, worker_conf
from puffin_ann.redaction import REDACTION
from puffin_ann.terminal import printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from puffin_ann.lifecycle.documents.run_ref import RunRef

log = logging.getLogger("puffin_ann")

GROUPED = ("build_group", "apply_group")
"""Stages that work on one group of shards."""

PACKAGES = {
    **dict.fromkeys(("train", "assign", "build_group", "gate"), "build"),
    **dict.fromkeys(("read_changes", "apply_group"), "refresh"),
    "evaluate": "evaluate",
}
"""Of each stage, the package whose `stages` has it."""


def main(stage: str) -> None:
    """Run one stage in a Spark application; leaves with the error's exit code if it fails.

    The gate does not fail by a low recall: that is for the task that publishes.
    """
    parser = argparse.ArgumentParser(description=f"Run the stage {stage!r} of a run.")
    parser.add_argument("--table", required=True, help="catalog.namespace.table")
    parser.add_argument("--plan", required=True, help="location of the staged plan")
    parser.add_argument("--owner", help="who has the lease on the index, to be kept alive")
    parser.add_argument("--attempt", help="name by which the submitter is told of progress, errors")
    if stage in GROUPED:
        parser.add_argument("--group", required=True, help="id of the shard group")
    arguments = parser.parse_args()
    group = [arguments.group] if stage in GROUPED else []
    logging.basicConfig(level=logging.WARNING, format=application_lines.FORMAT, stream=sys.stdout)
    logging.getLogger("puffin_ann").setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.addFilter(REDACTION)  # what others log, too

    prefer_folders()
    from puffin_ann.lifecycle.documents.run_ref import RunRef
    from puffin_ann.lifecycle.runs.last_words import leave_last_words
    from puffin_ann.lifecycle.spark.runner import OnSpark

    name = f"puffin_ann.lifecycle.{PACKAGES[stage]}.stages"
    needs_workers = stage != "train"  # which needs none where the table is small
    spark = _session(meanwhile=name, workers=needs_workers)
    warming = None
    try:
        if needs_workers:
            warming = warm_up(spark.sparkContext)
        module = import_module(name)
        run = RunRef.at(arguments.table, arguments.plan)
        with _lease(run, arguments.owner, stage), _progress(run, arguments.attempt):
            getattr(module, stage)(OnSpark(spark), run, *group)
    except RecallTooLowError as error:
        # The application has done its work: what it measured is staged, and publishing refuses it.
        # To fail would have it submitted again, for the same outcome.
        log.warning("%s", printable(str(error)))
    except PuffinAnnError as error:
        if arguments.attempt:
            leave_last_words(arguments.table, arguments.plan, arguments.attempt, error)
        failure = f"{application_lines.FAILURE}{error}"
        print(printable(failure), file=sys.stderr, flush=True)
        sys.exit(error.exit_code)
    finally:
        stop(spark, warming)


def _session(meanwhile: str, *, workers: bool) -> "SparkSession":
    """Start the session that spark-submit configured, with our way to start its workers.

    This process would only wait for the JVM: it imports the module `meanwhile`. PySpark has been
    imported by then, since two threads must not import packages that import each other.

    Args:
        meanwhile: module to import.
        workers: Python workers will be needed.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()  # or what spark-submit was given is not there to be read
    given = dict(SparkConf().getAll())
    added = worker_conf(given)
    ahead: AbstractContextManager[dict[str, str]] = nullcontext({})
    if workers:
        ahead = daemon_ahead({**given, **added})
    with ahead as more, ThreadPoolExecutor(1) as pool:
        pool.submit(import_module, meanwhile)  # if it fails, so it does where it is needed
        builder: SparkSession.Builder = SparkSession.builder
        for name, value in {**added, **more}.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


def _lease(run: "RunRef", owner: str | None, stage: str) -> AbstractContextManager[None]:
    """Keep the run's lease alive during the stage; nothing where the caller keeps it itself."""
    from puffin_ann.lifecycle.runtime import leases

    if owner is None:
        return nullcontext()
    return leases.keep_lease(run.table, run.index, owner, f"stage {stage}")


def _progress(run: "RunRef", attempt: str | None) -> AbstractContextManager[None]:
    """Leave lines on progress for the task that submitted this; nothing where no task did."""
    from puffin_ann.lifecycle.runs.told_progress import leaving_progress

    return nullcontext() if attempt is None else leaving_progress(run, attempt)
