"""A build through Spark against the same build in one process, on the same table."""

import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import lakehouse
from benchmarks.data import ROOT, load
from benchmarks.results import Result, Row

if TYPE_CHECKING:
    from puffin_ann.lifecycle.documents.run import PlanPointer
    from puffin_ann.lifecycle.runtime.runners import Runner


def measure(name: str, rounds: int) -> Result:
    """Build by turns; Spark is started before each build, as our applications start it.

    Each time with a JVM of its own, which has run nothing yet: so has that of every user's build.
    """
    from pyspark.sql import SparkSession

    data = load(name)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "include"), str(ROOT)])
    # Installed packages have their bytecode; where none may be written, ours would not.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    seconds: dict[str, list[dict[str, float]]] = {"spark": [], "process": []}
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        lakehouse.configure(Path(temporary))
        lakehouse.create_table(data.vectors)
        from puffin_ann.lifecycle.runtime.runners import InProcess
        from puffin_ann.lifecycle.spark.daemon_prestart import daemon_ahead
        from puffin_ann.lifecycle.spark.runner import OnSpark
        from puffin_ann.lifecycle.spark.session import worker_conf
        from puffin_ann.settings import settings

        for number in range(rounds):
            quiet = {
                "spark.master": "local[2]",
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                "spark.log.level": "ERROR",
            }
            plan = _planned(f"spark-{number}")
            conf = {**quiet, **worker_conf(quiet)}
            with daemon_ahead(conf) as more:
                spark = SparkSession.builder.config(map={**conf, **more}).getOrCreate()
            seconds["spark"].append(_stages(OnSpark(spark), plan))
            spark.stop()
            _end_jvm()
            seconds["process"].append(_stages(InProcess(), _planned(f"process-{number}")))
        threads = settings().thread_count
    totals = {key: median(sum(run.values()) for run in runs) for key, runs in seconds.items()}
    facts = [
        f"{key}: "
        + ", ".join(f"{stage} {median(run[stage] for run in runs):.1f} s" for stage in runs[0])
        for key, runs in seconds.items()
    ]
    return Result(
        family="spark",
        facts=facts,
        rows=[
            Row(
                key="spark",
                what=f"build through Spark (`local[2]`) ÷ in process with {threads} threads, "
                f"{data.title}, 4 shards, train + assign + build, from when Spark has started",
                ours=f"{totals['spark']:.1f} s",
                theirs=f"{totals['process']:.1f} s",
                measured=totals["spark"] / totals["process"],
                least=1.3,
                aim=1.1,
                below=True,
            )
        ],
    )


def _end_jvm() -> None:
    """End the JVM of the session that was stopped: the next one starts another."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


def _planned(run_id: str) -> "PlanPointer":
    from puffin_ann.lifecycle.runs import build as run

    return run.plan_build(lakehouse.declared(), run_id=run_id, overrides={"force": True})


def _stages(runner: "Runner", plan: "PlanPointer") -> dict[str, float]:
    """Run the stages that do the heavy work; returns the seconds of each.

    What starts the workers ahead of the first task, when our sessions begin, counts from there.
    """
    from puffin_ann.lifecycle.build import stages
    from puffin_ann.lifecycle.documents.run_ref import RunRef
    from puffin_ann.lifecycle.spark.runner import OnSpark
    from puffin_ann.lifecycle.spark.session import warm_up

    this_run = RunRef.planned(plan)

    def build() -> None:
        for group in plan.groups:
            stages.build_group(runner, this_run, group)

    def train() -> None:
        if isinstance(runner, OnSpark):
            warm_up(runner.spark.sparkContext)
        stages.train(runner, this_run)

    works: dict[str, Callable[[], object]] = {
        "train": train,
        "assign": partial(stages.assign, runner, this_run),
        "build": build,
    }
    found = {}
    for stage, work in works.items():
        began = time.perf_counter()
        work()
        found[stage] = time.perf_counter() - began
    return found
