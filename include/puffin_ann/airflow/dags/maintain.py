"""The maintenance DAG of an index, which runs in its maintenance window."""

from airflow.sdk import DAG, get_current_context, task

from puffin_ann.airflow.dag_ids import Kind
from puffin_ann.airflow.dags.lease_tasks import lease_tasks
from puffin_ann.airflow.dags.refresh_tasks import refresh_tasks
from puffin_ann.airflow.dags.settings import Installation
from puffin_ann.airflow.failures import fail_plainly
from puffin_ann.airflow.operators.submit_stage import owner_of
from puffin_ann.airflow.state.tell import tell_state
from puffin_ann.declaration import IndexDeclaration

KIND: Kind = "maintain"


def maintain_dag(declaration: IndexDeclaration, installation: Installation) -> DAG:
    """Return the maintenance DAG of one index."""
    with DAG(
        description=f"Maintain vector index {declaration.name} of {declaration.table}",
        doc_md=f"""
Keeps the vector index **{declaration.name}** of `{declaration.table}` in order: makes its file safe
from expiry and orphan removal, merges deltas that have grown, rebuilds shards of which too many
rows were deleted, and removes superseded versions and what failed runs left behind.
""",
        schedule=declaration.maintain.schedule,
        **installation.dag_arguments(KIND, declaration),
    ) as dag:

        @task
        @fail_plainly()
        def guard() -> None:
            """Make the table's index files safe from expiry and orphan removal."""
            from puffin_ann.lifecycle.runs import maintain

            owner = owner_of(KIND, get_current_context()["run_id"])
            done = maintain.guard_table(declaration.table, owner=owner)
            for action in done or ("every index file is safely registered: nothing was done",):
                print(action)

        @task(trigger_rule="none_failed")
        @fail_plainly()
        def clean() -> None:
            """Remove superseded versions, and what failed runs left behind."""
            from puffin_ann.lifecycle.runs import maintain

            owner = owner_of(KIND, get_current_context()["run_id"])
            done = maintain.clean_table(declaration.table, owner=owner)
            for line in done or ("nothing is superseded or left behind: nothing was removed",):
                print(line)
            tell_state(declaration)

        lease, release = lease_tasks(declaration, KIND)
        backend = installation.backend_of(declaration)
        first, last = refresh_tasks(declaration, backend, KIND, maintenance=True)
        lease >> guard() >> first
        [last, dag.get_task("build_anew")] >> clean() >> release
    return dag
