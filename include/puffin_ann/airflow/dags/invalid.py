"""The DAG that stands for a declaration that is not valid."""

from airflow.sdk import DAG, task

from puffin_ann.airflow.failures import fail_plainly
from puffin_ann.errors import DeclarationError


def invalid_dag(dag_id: str, error: DeclarationError) -> DAG:
    """Return a DAG whose one task fails with what is wrong with the declaration."""
    with DAG(
        dag_id=dag_id,
        description=f"A declaration is not valid: {error}",
        doc_md=f"The declaration is not valid, so there is nothing to run:\n\n```\n{error}\n```",
        schedule=None,
        tags=["puffin-ann", "invalid-declaration"],
    ) as dag:

        @task(retries=0)
        @fail_plainly()
        def invalid_declaration() -> None:
            """Fail with what is wrong with the declaration."""
            raise DeclarationError(str(error))

        invalid_declaration()
    return dag
