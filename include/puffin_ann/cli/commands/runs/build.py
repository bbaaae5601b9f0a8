"""`puffin-ann build`: the build run, without Airflow."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from puffin_ann.cli.approval import Yes, require_approval
from puffin_ann.cli.declarations import DeclaredIndex, find_declared
from puffin_ann.cli.lease_options import NoWait, own_run_id, writing
from puffin_ann.cli.output import AsJson, console, in_words, print_json, say
from puffin_ann.cli.progress import PUBLISH, Step, steps
from puffin_ann.cli.spark_session import Master, on_spark, require_pyspark
from puffin_ann.declaration import IndexDeclaration

if TYPE_CHECKING:
    from puffin_ann.lifecycle.documents.run import PlanPointer
    from puffin_ann.lifecycle.spark.runner import WhenNeeded


def build(
    index: DeclaredIndex,
    master: Master = "local[*]",
    force: Annotated[
        bool, typer.Option("--force", help="Build even if the published version is up to date.")
    ] = False,
    yes: Yes = False,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Build a declared index and publish it into its table, as the build DAG does.

    Example: puffin-ann build glove_words
    """
    from puffin_ann.lake.catalog.tables import load_table
    from puffin_ann.lifecycle.report import status as statuses
    from puffin_ann.lifecycle.runs import build as runs
    from puffin_ann.lifecycle.runs import publish

    declaration = find_declared(index)
    require_pyspark()
    require_approval(declaration, force=force, yes=yes)
    run_id = own_run_id()
    with (
        writing(declaration.table, declaration.name, run_id, "build", no_wait=no_wait),
        steps(as_json=as_json) as step,
    ):
        with step("plan"):
            plan = runs.plan_build(declaration, run_id=run_id, overrides={"force": force})
        if plan.action == "build":
            _run_stages(declaration, plan, master, step)
        publish.report(plan)
    (status,) = statuses.status(load_table(declaration.table), declaration.name, [declaration])
    if as_json:
        print_json({"action": plan.action, "reason": plan.reason, **status.model_dump()})
        return
    line = f"{declaration.name}: {in_words(plan.action)}: {plan.reason}"
    say(line)
    console.print(statuses.grid(status))


def _run_stages(
    declaration: IndexDeclaration, plan: "PlanPointer", master: str, step: Step
) -> None:
    with on_spark(declaration, master) as runner:
        for name, work in _works(runner, plan):
            with step(name):
                work()


def _works(runner: "WhenNeeded", plan: "PlanPointer") -> list[tuple[str, Callable[[], object]]]:
    from puffin_ann.lifecycle.build import stages
    from puffin_ann.lifecycle.documents.run_ref import RunRef
    from puffin_ann.lifecycle.runs import publish

    run = RunRef.planned(plan)
    return [
        ("start Spark", runner.started),
        ("train centroids", lambda: stages.train(runner, run)),
        ("assign rows", lambda: stages.assign(runner, run)),
        *(
            (
                f"build shard group {group}",
                partial(stages.build_group, runner, run, group),
            )
            for group in plan.groups
        ),
        ("measure recall", lambda: stages.gate(runner, run)),
        (PUBLISH, lambda: publish.publish(run)),
    ]
