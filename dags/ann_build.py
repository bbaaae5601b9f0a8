"""Build DAGs: one `ann_build_<index>` for each declaration under `include/indexes/`.

This file sequences and retries; what is done stands in `puffin_ann.lifecycle`. It is parsed every
few seconds, so it imports no more than Airflow, pydantic and YAML.
"""

from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Param, get_current_context, get_parsing_context, task

from puffin_ann.declaration import IndexDeclaration, declarations_folder
from puffin_ann.errors import DeclarationError
from puffin_ann_common import (
    SETTINGS,
    arguments,
    bounds_of,
    checkbox,
    dags_of,
    lease_tasks,
    owner_of,
    refusing,
    schema_of,
    spark,
    tags_of,
)

KIND = "build"
PREFIX = "ann_build_"
FORM = ("shards", "partitions_per_shard", "recall_target")
"""Fields of the declaration that the trigger form offers, beside the algorithm's parameters."""


def form(declaration: IndexDeclaration) -> dict[str, Param]:
    """Return the trigger form: the declared values, and the bounds the declaration has for them."""
    fields = schema_of(IndexDeclaration)
    offered = {name: (fields[name], getattr(declaration, name)) for name in FORM}
    parameters = declaration.parameters
    for name, schema in schema_of(type(parameters)).items():
        offered[name] = (schema, getattr(parameters, name))
    params = {name: Param(value, **bounds_of(schema)) for name, (schema, value) in offered.items()}
    params["force"] = checkbox("Build even if the published version is up to date.")
    return params


def build_dag(declaration: IndexDeclaration, _: list[IndexDeclaration]) -> DAG:
    """Return the build DAG of one index."""

    def submitted(task_id: str, app: str) -> dict[str, Any]:
        return spark(declaration, PREFIX, task_id, app)

    given = arguments(declaration, KIND)

    with DAG(
        dag_id=f"{PREFIX}{declaration.name}",
        description=f"Build vector index {declaration.name} of {declaration.table}",
        doc_md=f"""
Builds the vector index **{declaration.name}** over `{declaration.table}.{declaration.column}`
and publishes it into the table as a Puffin file.

A run ends at once where the published version already covers the table; `force` builds anyway.
Values in the trigger form count for that run only: the declaration is what the next run takes.
A run whose recall is under the target publishes nothing. A run waits for other runs on the index.
""",
        schedule=declaration.schedule,
        tags=tags_of(KIND, declaration),
        **SETTINGS,
    ) as dag:

        @task
        def plan() -> dict[str, Any]:
            """Decide what is built, from which snapshot; a retry finds the plan of its own run."""
            from puffin_ann.lifecycle import run

            context = get_current_context()
            with refusing():
                run.require_spark()
                return run.plan_build(
                    declaration, run_id=context["run_id"], overrides=dict(context["params"])
                )

        @task.short_circuit(ignore_downstream_trigger_rules=False)
        def deal_groups(planned: dict[str, Any]) -> list[list[str]]:
            """Return the arguments of each shard group's build; none ends the run at `report`."""
            common = ["--table", planned["table"], "--plan", planned["plan"]]
            common += ["--owner", owner_of(KIND, get_current_context()["run_id"])]
            return [[*common, "--group", group] for group in planned["groups"]]

        @task
        def publish(planned: dict[str, Any]) -> dict[str, Any]:
            """Assemble the Puffin file and publish it in one commit, at most once a run."""
            from puffin_ann.lifecycle import run

            return run.publish(planned["table"], planned["plan"])

        @task(trigger_rule="none_failed")
        def report(planned: dict[str, Any]) -> None:
            """Log the state of the table's indexes; clear what the run staged."""
            from puffin_ann.lifecycle import run

            print(planned["reason"])
            print(run.report(planned["table"], planned["plan"]))

        lease, release = lease_tasks(declaration, KIND)
        planned = plan()
        groups = deal_groups(planned)
        train = SparkSubmitOperator(**submitted("train", "train.py"), application_args=given)
        assign = SparkSubmitOperator(**submitted("assign", "assign.py"), application_args=given)
        build = SparkSubmitOperator.partial(**submitted("build_shards", "build_group.py")).expand(
            application_args=groups
        )
        gate = SparkSubmitOperator(**submitted("gate", "gate.py"), application_args=given)
        published, reported = publish(planned), report(planned)
        lease >> planned >> groups >> train >> assign >> build >> gate >> published
        published >> reported >> release
    return dag


def invalid_dag(dag_id: str, error: DeclarationError) -> DAG:
    """Return a DAG that stands for a declaration that is not valid, and says what is wrong."""
    with DAG(
        dag_id=dag_id,
        description=f"A declaration is not valid: {error}",
        doc_md=f"The declaration is not valid, so there is nothing to run:\n\n```\n{error}\n```",
        schedule=None,
        tags=["puffin-ann", "invalid-declaration"],
    ) as dag:

        @task(retries=0)
        def invalid_declaration() -> None:
            """Fail with what is wrong with the declaration."""
            raise DeclarationError(str(error))

        invalid_declaration()
    return dag


globals().update(
    dags_of(
        declarations_folder(),
        PREFIX,
        build_dag,
        form,
        get_parsing_context().dag_id,
        stand_in=invalid_dag,
    )
)
