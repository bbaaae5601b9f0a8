"""Maintenance DAGs: one `ann_maintain_<index>` for each declaration, in its maintenance window."""

from airflow.sdk import DAG, get_current_context, get_parsing_context, task

from puffin_ann.declaration import IndexDeclaration, declarations_folder
from puffin_ann_common import SETTINGS, dags_of, lease_tasks, tags_of
from puffin_ann_failing import plainly
from puffin_ann_forms import force_form
from puffin_ann_refreshing import refresh_tasks
from puffin_ann_submitting import owner_of

KIND = "maintain"
PREFIX = "ann_maintain_"


def maintain_dag(declaration: IndexDeclaration, _: list[IndexDeclaration]) -> DAG:
    """Return the maintenance DAG of one index."""
    with DAG(
        dag_id=f"{PREFIX}{declaration.name}",
        description=f"Maintain vector index {declaration.name} of {declaration.table}",
        doc_md=f"""
Keeps the vector index **{declaration.name}** of `{declaration.table}` in order: makes its file safe
from expiry and orphan removal, merges deltas that have grown, rebuilds shards of which too many
rows were deleted, and removes superseded versions and what failed runs left behind.
""",
        schedule=declaration.maintain.schedule,
        tags=tags_of(KIND, declaration),
        **SETTINGS,
    ) as dag:

        @task
        @plainly()
        def guard() -> None:
            """Make the table's index files safe from expiry and orphan removal."""
            from puffin_ann.lifecycle.runs import maintain

            owner = owner_of(KIND, get_current_context()["run_id"])
            for action in maintain.guard_table(declaration.table, owner=owner):
                print(action)

        @task(trigger_rule="none_failed")
        @plainly()
        def clean() -> None:
            """Remove superseded versions, and what failed runs left behind."""
            from puffin_ann.lifecycle.runs import maintain

            owner = owner_of(KIND, get_current_context()["run_id"])
            for line in maintain.clean_table(declaration.table, owner=owner):
                print(line)

        lease, release = lease_tasks(declaration, KIND)
        first, last = refresh_tasks(declaration, PREFIX, KIND, maintenance=True)
        lease >> guard() >> first
        [last, dag.get_task("build_anew")] >> clean() >> release
    return dag


globals().update(
    dags_of(declarations_folder(), PREFIX, maintain_dag, force_form, get_parsing_context().dag_id)
)
