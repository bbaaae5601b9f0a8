"""The refresh DAG of an index, which runs when the index's table changes."""

from airflow.sdk import DAG

from puffin_ann.airflow.assets import asset_of
from puffin_ann.airflow.dag_ids import Kind
from puffin_ann.airflow.dags.lease_tasks import lease_tasks
from puffin_ann.airflow.dags.refresh_tasks import refresh_tasks
from puffin_ann.airflow.dags.settings import Installation
from puffin_ann.declaration import IndexDeclaration

KIND: Kind = "refresh"


def refresh_dag(
    declaration: IndexDeclaration, installation: Installation, declared: list[IndexDeclaration]
) -> DAG:
    """Return the refresh DAG of one index."""
    watched = declaration.refresh.watch
    with DAG(
        description=f"Make vector index {declaration.name} follow {declaration.table}",
        doc_md=f"""
Makes the vector index **{declaration.name}** follow `{declaration.table}`: added rows become a
delta, deleted ones tombstones, relocated rows new locators. A run ends at once where too
little changed; where a whole build is required, it triggers `ann_build_{declaration.name}`.

It runs when the table has new snapshots, other than those that publish indexes, and when changes
have waited for `refresh.max_lag`. A run waits for other runs on the index, and plans after that.
""",
        schedule=[asset_of(declaration.table, declared)] if watched else None,
        **installation.dag_arguments(KIND, declaration),
    ) as dag:
        lease, release = lease_tasks(declaration, KIND)
        backend = installation.backend_of(declaration)
        first, last = refresh_tasks(declaration, backend, KIND, maintenance=False)
        lease >> first
        [last, dag.get_task("build_anew")] >> release
    return dag
