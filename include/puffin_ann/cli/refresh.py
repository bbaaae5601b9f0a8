"""`puffin-ann refresh`: bring an index up to date with its table, without Airflow."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from puffin_ann.cli.build import find_declared, require_pyspark, spark_session, stderr_console
from puffin_ann.cli.output import AsJson, console, print_json
from puffin_ann.cli.waiting import NoWait, own_run_id, writing


def refresh(
    index: Annotated[
        str, typer.Argument(help="A declared index by name, or the path of a declaration file.")
    ],
    master: Annotated[
        str | None,
        typer.Option(
            help="Spark master, such as local[*] or spark://host:7077; default: this process."
        ),
    ] = None,
    maintenance: Annotated[
        bool,
        typer.Option("--maintenance", help="Rebuild shards of many deleted rows, too."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Publish changes, however few and fresh they are.")
    ] = False,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Bring a declared index up to date with its table, doing only what is due.

    Example: puffin-ann refresh glove_words
    """
    from puffin_ann.lifecycle.refresh import refresh_in_process
    from puffin_ann.lifecycle.runners import InProcess, OnSpark, Runner

    declaration = find_declared(index)
    run_id = own_run_id()
    with ExitStack() as stack:
        stack.enter_context(
            writing(declaration.table, declaration.name, run_id, "refresh", no_wait=no_wait)
        )
        progress = stack.enter_context(
            Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                console=stderr_console() if as_json else console,
            )
        )

        @contextmanager
        def step(name: str) -> Iterator[None]:
            task = progress.add_task(name, total=None)
            yield
            progress.update(task, total=1, completed=1)

        runner: Runner = InProcess()
        if master is not None:
            require_pyspark()
            with step("start Spark"):
                spark = spark_session(declaration, master)
            stack.callback(spark.stop)
            runner = OnSpark(spark)
        done = refresh_in_process(
            declaration,
            run_id=run_id,
            maintenance=maintenance,
            force=force,
            runner=runner,
            progress=step,
        )
    if as_json:
        print_json(done)
        return
    lines = [f"{declaration.name}: {done['action']}: {done['reason']}"]
    if done["snapshot_id"] is not None:
        lines.append(
            f"published as snapshot {done['snapshot_id']}: {done['bytes_written']:,} bytes "
            f"written, {done['bytes_copied']:,} carried over"
        )
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
