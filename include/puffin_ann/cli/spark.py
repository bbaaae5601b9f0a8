"""Spark sessions for commands that run stages on one."""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.cli.quiet import held_back
from puffin_ann.declaration import IndexDeclaration
from puffin_ann.errors import EnvironmentProblemError, SparkNotFoundError

if TYPE_CHECKING:
    from threading import Thread

    from pyspark.sql import SparkSession

    from puffin_ann.lifecycle.runners import WhenNeeded

Master = Annotated[str, typer.Option(help="Spark master, such as local[*] or spark://host:7077.")]


def require_pyspark() -> None:
    """Make sure that Spark can be started in this process.

    Raises:
        SparkNotFoundError: says what is missing, and how to get it.
    """
    from puffin_ann.lifecycle import run as runs

    runs.require_spark(["java"])
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
    from puffin_ann.lifecycle.runners import WhenNeeded
    from puffin_ann.lifecycle.spark_workers import warm_up

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
    from pyspark.sql import SparkSession

    from puffin_ann.lifecycle.spark_ahead import daemon_ahead
    from puffin_ann.lifecycle.spark_workers import worker_conf

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: SparkSession.Builder = SparkSession.builder.master(master).appName(
        f"puffin-ann {declaration.name}"
    )
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    chosen = declaration.spark.conf
    conf = {**quiet, **worker_conf(chosen), **chosen}
    try:
        with held_back(), daemon_ahead({"spark.master": master, **conf}) as more:
            session: SparkSession = builder.config(map={**conf, **more}).getOrCreate()
    except Exception as error:  # whatever Spark's JVM or its gateway has to say
        lines = str(error).strip().splitlines() or [type(error).__name__]
        # Py4J tells first which call failed, then, after a colon, why.
        reason = next((line[2:] for line in lines if line.startswith(": ")), lines[0])
        raise EnvironmentProblemError(
            f"Spark cannot be started on master {master!r}: {reason}"
        ) from None
    return session
