"""`puffin-ann build`: the build run, without Airflow."""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from puffin_ann.cli.output import AsJson, console, print_json
from puffin_ann.cli.quiet import held_back
from puffin_ann.cli.waiting import NoWait, own_run_id, writing
from puffin_ann.declaration import IndexDeclaration, load_declaration, load_declarations
from puffin_ann.errors import DeclarationError, EnvironmentProblemError, SparkNotFoundError

if TYPE_CHECKING:
    from threading import Thread

    from pyspark.sql import SparkSession

    from puffin_ann.lifecycle.runners import WhenNeeded


def build(
    index: Annotated[
        str, typer.Argument(help="A declared index by name, or the path of a declaration file.")
    ],
    master: Annotated[
        str, typer.Option(help="Spark master, such as local[*] or spark://host:7077.")
    ] = "local[*]",
    force: Annotated[
        bool, typer.Option("--force", help="Build even if the published version is up to date.")
    ] = False,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Build a declared index and publish it into its table, as the build DAG does.

    Example: puffin-ann build glove_words
    """
    from puffin_ann.lake.catalog import load_table
    from puffin_ann.lifecycle import run as runs
    from puffin_ann.lifecycle import status as statuses

    declaration = find_declared(index)
    require_pyspark()
    run_id = own_run_id()
    with (
        writing(declaration.table, declaration.name, run_id, "build", no_wait=no_wait),
        Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console if not as_json else stderr_console(),
        ) as progress,
    ):
        step = progress.add_task("plan", total=None)
        plan = runs.plan_build(declaration, run_id=run_id, overrides={"force": force})
        progress.update(step, total=1, completed=1, description=f"plan: {plan['reason']}")
        if plan["action"] == "build":
            _run_stages(declaration, plan, master, progress)
        runs.report(plan["table"], plan["plan"])
    (status,) = statuses.status(load_table(declaration.table), declaration.name)
    if as_json:
        print_json({"action": plan["action"], "reason": plan["reason"], **status.model_dump()})
    else:
        console.print(statuses.grid(status))


def stderr_console() -> Any:
    """Return what shows progress where the output is for machines."""
    from rich.console import Console

    return Console(file=sys.stderr)


def find_declared(index: str) -> IndexDeclaration:
    """Return the declaration named, from its file or from the declarations folder."""
    from puffin_ann.settings import settings

    if index.endswith((".yaml", ".yml")):
        return load_declaration(Path(index))
    folder = settings().declarations_dir
    declared = {one.name: one for one in load_declarations(folder)}
    if index not in declared:
        raise DeclarationError(
            f"no index named {index!r} is declared in {folder}; declared are: "
            + (", ".join(declared) or "none")
        )
    return declared[index]


def _run_stages(
    declaration: IndexDeclaration, plan: dict[str, Any], master: str, progress: Progress
) -> None:
    from puffin_ann.lifecycle import run as runs
    from puffin_ann.lifecycle import stages

    runner = on_spark(declaration, master)
    table, location = plan["table"], plan["plan"]
    works: list[tuple[str, Callable[[], object]]] = [
        ("start Spark", runner.started),
        ("train centroids", lambda: stages.train(runner, table, location)),
        ("assign rows", lambda: stages.assign(runner, table, location)),
        *(
            (
                f"build shard group {group}",
                partial(stages.build_group, runner, table, location, group),
            )
            for group in plan["groups"]
        ),
        ("measure recall", lambda: stages.gate(runner, table, location)),
        ("publish", lambda: runs.publish(table, location)),
    ]
    with runner:
        for name, work in works:
            step = progress.add_task(name, total=None)
            work()
            progress.update(step, total=1, completed=1)


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
    for name, value in {**quiet, **worker_conf(chosen), **chosen}.items():
        builder = builder.config(name, value)
    try:
        with held_back():
            session: SparkSession = builder.getOrCreate()
    except Exception as error:  # whatever Spark's JVM or its gateway has to say
        lines = str(error).strip().splitlines() or [type(error).__name__]
        # Py4J tells first which call failed, then, after a colon, why.
        reason = next((line[2:] for line in lines if line.startswith(": ")), lines[0])
        raise EnvironmentProblemError(
            f"Spark cannot be started on master {master!r}: {reason}"
        ) from None
    return session
