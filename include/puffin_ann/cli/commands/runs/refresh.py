"""`puffin-ann refresh`: bring an index up to date with its table, without Airflow."""

from contextlib import ExitStack
from typing import Annotated

import typer

from puffin_ann.cli.approval import Yes, postpones
from puffin_ann.cli.declarations import DeclaredIndex, find_declared
from puffin_ann.cli.lease_options import NoWait, own_run_id, writing
from puffin_ann.cli.output import AsJson, in_words, print_json, say
from puffin_ann.cli.progress import steps
from puffin_ann.cli.spark_session import on_spark, require_pyspark
from puffin_ann.wording import counted


def refresh(
    index: DeclaredIndex,
    master: Annotated[
        str | None,
        typer.Option(
            help="Spark master, such as local[*] or spark://host:7077; default: this process."
        ),
    ] = None,
    maintenance: Annotated[
        bool,
        typer.Option(
            "--maintenance",
            help="Also do what is required although nothing changed, and rebuild shards.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Publish changes, however few and fresh they are.")
    ] = False,
    yes: Yes = False,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Bring a declared index up to date with its table, doing only what is due.

    Example: puffin-ann refresh glove_words
    """
    from puffin_ann.lifecycle.runs.in_process import refresh_in_process
    from puffin_ann.lifecycle.runtime.runners import InProcess, Runner

    declaration = find_declared(index)
    waits = postpones(declaration, yes=yes, maintenance=maintenance, force=force)
    run_id = own_run_id()
    with ExitStack() as stack:
        stack.enter_context(
            writing(declaration.table, declaration.name, run_id, "refresh", no_wait=no_wait)
        )
        step = stack.enter_context(steps(as_json=as_json))
        runner: Runner = InProcess()
        if master is not None:
            require_pyspark()
            runner = stack.enter_context(on_spark(declaration, master, step))
        done = refresh_in_process(
            declaration,
            run_id=run_id,
            maintenance=maintenance,
            force=force,
            postpones=waits,
            runner=runner,
            progress=step,
        )
    if as_json:
        print_json(done)
        return
    is_done = done["snapshot_id"] is not None
    what = f"{in_words(done['action'])}{', as planned' if is_done else ''}"
    lines = [f"{declaration.name}: {what}: {done['reason']}"]
    if is_done:
        found = (
            f"found: {counted(done['rows_added'], 'row')} added and {done['rows_gone']:,} removed"
        )
        if done["action"] == "refresh":
            found += ", not counting those that were only relocated"
        lines += [
            found,
            f"published as snapshot {done['snapshot_id']}: {done['bytes_written']:,} bytes "
            f"written, {done['bytes_copied']:,} copied; the rest stays where it is",
        ]
    if done["undone"]:
        lines.append(f"left undone: {done['undone']}")
    for line in lines:
        say(line)
