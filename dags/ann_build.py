"""Build DAGs: one `ann_build_<index>` for each declaration under `include/indexes/`.

This file sequences and retries; what is done stands in `puffin_ann.lifecycle`. It is parsed every
few seconds, so it imports no more than Airflow, pydantic and YAML.
"""

from typing import Any

from airflow.sdk import DAG, Param, get_current_context, get_parsing_context, task

from puffin_ann.declaration import IndexDeclaration, declarations_folder
from puffin_ann.errors import DeclarationError, TooFewRowsError
from puffin_ann_common import SETTINGS, dags_of, lease_tasks, tags_of
from puffin_ann_failing import plainly
from puffin_ann_forms import bounds_of, checkbox, schema_of, values_of
from puffin_ann_submitting import StageOperator, require_spark, spark

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
        return spark(declaration, PREFIX, task_id, app, KIND)

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
        @plainly()
        def plan() -> dict[str, Any]:
            """Decide what is built, from which snapshot; a retry finds the plan of its own run."""
            from puffin_ann.lifecycle.runs import build as run

            context = get_current_context()
            given = values_of(context, form(declaration))
            require_spark(declaration.spark.conn_id)
            try:
                return run.plan_build(declaration, run_id=context["run_id"], overrides=given)
            except TooFewRowsError as error:
                return run.nothing(declaration, str(error))

        @task.short_circuit(ignore_downstream_trigger_rules=False)
        def deal_groups(planned: dict[str, Any]) -> list[str]:
            """Return the groups of shards that are built; none ends the run at `report`."""
            return list(planned["groups"])

        @task
        @plainly()
        def publish(planned: dict[str, Any]) -> dict[str, Any]:
            """Assemble the Puffin file and publish it in one commit, at most once a run.

            Refused where the gate measured a recall under the target.
            """
            from puffin_ann.lifecycle.runs import publish

            return publish.publish(planned["table"], planned["plan"])

        @task(trigger_rule="none_failed")
        @plainly()
        def report(planned: dict[str, Any]) -> None:
            """Log the state of the table's indexes; clear what the run staged."""
            from puffin_ann.lifecycle.runs import publish

            print(planned["reason"])
            print(publish.report(planned["table"], planned["plan"]))

        lease, release = lease_tasks(declaration, KIND)
        planned = plan()
        groups = deal_groups(planned)
        train = StageOperator(**submitted("train", "train.py"))
        assign = StageOperator(**submitted("assign", "assign.py"))
        build = StageOperator.partial(**submitted("build_shards", "build_group.py")).expand(
            group=groups
        )
        gate = StageOperator(**submitted("gate", "gate.py"))
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
        @plainly()
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
