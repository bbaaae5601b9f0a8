"""Evaluation DAGs: one `ann_evaluate_<index>` for each declaration; measures recall over time."""

from typing import Any

from airflow.sdk import DAG, Param, get_current_context, get_parsing_context, task

from puffin_ann.declaration import IndexDeclaration, declarations_folder
from puffin_ann_common import SETTINGS, dags_of, tags_of
from puffin_ann_failing import plainly, skipping
from puffin_ann_forms import bounds_of, schema_of, values_of
from puffin_ann_submitting import StageOperator, require_spark, spark

KIND = "evaluate"
PREFIX = "ann_evaluate_"


def form(declaration: IndexDeclaration) -> dict[str, Param]:
    """Return the trigger form: how many queries."""
    options = declaration.evaluate
    bounds = bounds_of(schema_of(type(options))["queries"])
    return {"queries": Param(options.queries, **bounds)}


def evaluate_dag(declaration: IndexDeclaration, _: list[IndexDeclaration]) -> DAG:
    """Return the evaluation DAG of one index."""
    options = declaration.evaluate
    with DAG(
        dag_id=f"{PREFIX}{declaration.name}",
        description=f"Measure the recall of vector index {declaration.name}",
        doc_md=f"""
Measures the recall of the vector index **{declaration.name}** on `{declaration.table}` as it is:
rows of one snapshot serve as queries, and Spark compares each with every row of that snapshot.
What is measured is recorded beside the index, and shown by `puffin-ann history`.

A run fails where the recall is under the target of {declaration.recall_target}, and says what to
do; it is skipped while no version is published. It changes nothing, and so waits for nobody.
""",
        schedule=options.schedule,
        tags=tags_of(KIND, declaration),
        **SETTINGS,
    ) as dag:

        @task
        @plainly()
        def plan() -> dict[str, Any]:
            """Pin the snapshot and the version that are measured; skipped where none is built."""
            from puffin_ann.lifecycle.runs import evaluate

            context = get_current_context()
            given = values_of(context, form(declaration))
            require_spark(declaration.spark.conn_id)
            with skipping():
                return evaluate.plan_evaluation(
                    declaration,
                    run_id=f"{KIND}-{context['run_id']}",
                    queries=int(given["queries"]),
                )

        @task(retries=0)
        @plainly()
        def judge(planned: dict[str, Any]) -> None:
            """Fail where the recall is under the target."""
            from puffin_ann.lifecycle.runs import evaluate

            print(evaluate.judge(planned["table"], planned["plan"]))

        planned = plan()
        measure = StageOperator(**spark(declaration, PREFIX, "measure", "evaluate.py", None))
        planned >> measure >> judge(planned)
    return dag


globals().update(
    dags_of(declarations_folder(), PREFIX, evaluate_dag, form, get_parsing_context().dag_id)
)
