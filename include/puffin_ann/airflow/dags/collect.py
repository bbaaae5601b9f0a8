"""The DAG that looks at all indexes of a DAG file by the clock, for the page of indexes."""

from pathlib import Path

from airflow.sdk import DAG, task

from puffin_ann.airflow.dag_ids import LONGEST_ID, NOT_IN_IDS
from puffin_ann.airflow.dags.settings import Installation
from puffin_ann.airflow.failures import fail_plainly
from puffin_ann.declaration import IndexDeclaration

COLLECT_TAG = "collect"


def collect_id(file: Path, folder: str | Path | None) -> str:
    """Return the id of the DAG that collects for a DAG file and the folder that it names."""
    named = "" if folder is None else f"_{folder}"
    return f"ann_collect_{NOT_IN_IDS.sub('_', file.stem + named)}"[:LONGEST_ID]


def collect_dag(
    dag_id: str, schedule: str, declarations: list[IndexDeclaration], installation: Installation
) -> DAG:
    """Return the DAG that collects how indexes stand."""
    with DAG(
        dag_id=dag_id,
        description="Collect how the vector indexes stand, for the page of indexes",
        doc_md="""
Looks at each declared index, and at what else is published in their tables, and keeps what it finds
in Airflow's database for the page *Vector indexes*. It changes no table. An index whose catalog
does not answer in time is kept as unreachable; the others are not held up.
""",
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        tags=["puffin-ann", COLLECT_TAG, *installation.tags],
        default_args={**installation.default_args, "retries": 0},
    ) as dag:

        @task
        @fail_plainly()
        def collect() -> None:
            """Look at each index; keep what is found."""
            from puffin_ann.airflow.state.tell import collect_all

            for line in collect_all(declarations):
                print(line)

        collect()
    return dag
