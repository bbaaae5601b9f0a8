"""Build DAGs: one `ann_build_<index>` for each declaration under `include/indexes/`.

This file sequences and retries; what is done stands in `puffin_ann.lifecycle`. It is parsed every
few seconds, so it imports no more than Airflow, pydantic and YAML.
"""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Param, get_current_context, get_parsing_context, task
from airflow.sdk.exceptions import AirflowFailException

from puffin_ann.declaration import (
    IndexDeclaration,
    declaration_files,
    load_declaration,
)
from puffin_ann.errors import BadInputError, DeclarationError, NotFoundError
from puffin_ann.settings import settings

SPARK_APPS = Path(__file__).resolve().parents[1] / "spark_apps"
PREFIX = "ann_build_"
PLAN = "{{ ti.xcom_pull(task_ids='plan')['plan'] }}"
FORM = ("shards", "partitions_per_shard", "recall_target")
"""Fields of the declaration that the trigger form offers, beside the algorithm's parameters."""


def form(declaration: IndexDeclaration) -> dict[str, Param]:
    """Return the trigger form: the declared values, and the bounds the declaration has for them."""
    fields = declaration.model_json_schema()["properties"]
    offered = {name: (fields[name], getattr(declaration, name)) for name in FORM}
    parameters = declaration.parameters
    for name, schema in type(parameters).model_json_schema().get("properties", {}).items():
        offered[name] = (schema, getattr(parameters, name))
    params = {name: Param(value, **_bounds(schema)) for name, (schema, value) in offered.items()}
    params["force"] = Param(
        False, type="boolean", description="Build even if the published version is up to date."
    )
    return params


def _bounds(schema: dict[str, Any]) -> dict[str, Any]:
    options = schema.get("anyOf", [schema])
    bounds: dict[str, Any] = {"type": [option["type"] for option in options]}
    for option in options:
        for name in ("minimum", "maximum"):
            if name in option:
                bounds[name] = option[name]
    bounds["description"] = schema.get("description", "")
    return bounds


def executor_environment() -> dict[str, str]:
    """Return the Spark configuration that lets executors find PyIceberg's configuration.

    Only its location: catalog credentials never stand in arguments.
    """
    home = os.environ.get("PYICEBERG_HOME")
    return {"spark.executorEnv.PYICEBERG_HOME": home} if home else {}


def build_dag(declaration: IndexDeclaration) -> DAG:
    """Return the build DAG of one index."""

    def spark(task_id: str, application: str) -> dict[str, Any]:
        return {
            "task_id": task_id,
            "application": str(SPARK_APPS / application),
            "name": f"{PREFIX}{declaration.name}.{task_id}",
            "conn_id": declaration.spark.conn_id,
            "conf": {**executor_environment(), **declaration.spark.conf},
        }

    arguments = ["--table", declaration.table, "--plan", PLAN]

    with DAG(
        dag_id=f"{PREFIX}{declaration.name}",
        description=f"Build vector index {declaration.name} of {declaration.table}",
        doc_md=f"""
Builds the vector index **{declaration.name}** over `{declaration.table}.{declaration.column}`
and publishes it into the table as a Puffin file.

A run ends at once where the published version already covers the table; `force` builds anyway.
Values in the trigger form count for that run only: the declaration is what the next run takes.
A run whose recall is under the target publishes nothing.
""",
        schedule=declaration.schedule,
        catchup=False,
        max_active_runs=1,
        render_template_as_native_obj=True,
        default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
        params=form(declaration),
        tags=["puffin-ann", "build", declaration.table],
    ) as dag:

        @task
        def plan() -> dict[str, Any]:
            """Decide what is built, from which snapshot; a retry finds the plan of its own run."""
            from puffin_ann.lifecycle import run

            context = get_current_context()
            try:
                run.require_spark()
                return run.plan_build(
                    declaration, run_id=context["run_id"], overrides=dict(context["params"])
                )
            except (BadInputError, NotFoundError) as error:
                # The next attempt would find the same; it would only hold up the next run.
                raise AirflowFailException(str(error)) from None

        @task.short_circuit(ignore_downstream_trigger_rules=False)
        def deal_groups(planned: dict[str, Any]) -> list[list[str]]:
            """Return the arguments of each shard group's build; none ends the run at `report`."""
            common = ["--table", planned["table"], "--plan", planned["plan"]]
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

        planned = plan()
        groups = deal_groups(planned)
        train = SparkSubmitOperator(**spark("train", "train.py"), application_args=arguments)
        assign = SparkSubmitOperator(**spark("assign", "assign.py"), application_args=arguments)
        build = SparkSubmitOperator.partial(**spark("build_shards", "build_group.py")).expand(
            application_args=groups
        )
        gate = SparkSubmitOperator(**spark("gate", "gate.py"), application_args=arguments)
        groups >> train >> assign >> build >> gate >> publish(planned) >> report(planned)
    return dag


def invalid_dag(path: Path, error: DeclarationError) -> DAG:
    """Return a DAG that stands for a declaration that is not valid.

    To raise here would take away the DAGs of all other declarations, which are of this same file.
    """
    with DAG(
        dag_id=f"{PREFIX}{path.stem}",
        description=f"Declaration {path.name} is not valid: {error}",
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


def build_dags(folder: Path, wanted: str | None) -> dict[str, DAG]:
    """Return the DAGs of a folder of declarations.

    Args:
        wanted: the one DAG a task process needs; it does not build the others.
    """
    dags: dict[str, DAG] = {}
    for path in declaration_files(folder):
        try:
            declaration = load_declaration(path)
            dag_id = f"{PREFIX}{declaration.name}"
            if dag_id in dags:
                raise DeclarationError(f"{path}: index {declaration.name!r} is declared twice")
            if wanted in (None, dag_id):
                dags[dag_id] = build_dag(declaration)
        except DeclarationError as error:
            dag_id = f"{PREFIX}{path.stem}"
            if wanted in (None, dag_id):
                dags.setdefault(dag_id, invalid_dag(path, error))
    return dags


globals().update(build_dags(settings().declarations_dir, get_parsing_context().dag_id))
