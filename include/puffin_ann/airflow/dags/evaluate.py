"""The evaluation DAG of an index, which measures its recall over time."""

from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task

from puffin_ann.airflow.dag_ids import Kind
from puffin_ann.airflow.dags.settings import Installation
from puffin_ann.airflow.failures import fail_plainly, skip_without_work
from puffin_ann.airflow.forms import bounds_of, schema_of, values_of
from puffin_ann.airflow.metrics import send_evaluation, send_state
from puffin_ann.airflow.operators.submit_stage import StageOperator, stage_arguments
from puffin_ann.airflow.state.tell import tell_state
from puffin_ann.declaration import IndexDeclaration

KIND: Kind = "evaluate"


def evaluate_form(declaration: IndexDeclaration) -> dict[str, Param]:
    """Return the trigger form: how many queries."""
    options = declaration.evaluate
    bounds = bounds_of(schema_of(type(options))["queries"])
    return {"queries": Param(options.queries, **bounds)}


def evaluate_dag(declaration: IndexDeclaration, installation: Installation) -> DAG:
    """Return the evaluation DAG of one index."""
    options, backend = declaration.evaluate, installation.backend_of(declaration)
    with DAG(
        description=f"Measure the recall of vector index {declaration.name}",
        doc_md=f"""
Measures the recall of the vector index **{declaration.name}** on `{declaration.table}` as it is:
rows of one snapshot serve as queries, and Spark compares each with every row of that snapshot.
What is measured is recorded beside the index, and shown by `puffin-ann history`.

A run fails where the recall is under the target of {declaration.recall_target}, and says what to
do; it is skipped while no version is published. It changes nothing, and so waits for nobody.
""",
        schedule=options.schedule,
        **installation.dag_arguments(KIND, declaration),
    ) as dag:

        @task
        @fail_plainly()
        def plan() -> dict[str, str]:
            """Pin the snapshot and the version that are measured; skipped where none is built."""
            from puffin_ann.lifecycle.runs import evaluate

            context = get_current_context()
            given = values_of(context, evaluate_form(declaration))
            backend.check(declaration.spark)
            send_state(declaration)
            with skip_without_work():
                run = evaluate.plan_evaluation(
                    declaration,
                    run_id=f"{KIND}-{context['run_id']}",
                    queries=int(given["queries"]),
                )
            return run.as_json()

        @task(retries=0)
        @fail_plainly()
        def judge(planned: dict[str, str]) -> None:
            """Clear what the run staged, and fail where the recall is under the target."""
            from puffin_ann.lifecycle.documents.run_ref import RunRef
            from puffin_ann.lifecycle.evaluate.records import recall_report
            from puffin_ann.lifecycle.runs import evaluate

            measured = evaluate.finish(RunRef.at(planned["table"], planned["plan"]))
            send_evaluation(measured)
            tell_state(declaration)
            print(recall_report(measured))

        planned: Any = plan()  # when the tasks run it is what `plan` returned
        measure = StageOperator(
            **stage_arguments(declaration, backend, KIND, "measure", "evaluate", has_lease=False)
        )
        planned >> measure >> judge(planned)
    return dag
