"""What a user may read and start, as Airflow's auth manager has it."""

from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails


def readable_dags(user: Any) -> set[str]:
    """Return the ids of the DAGs that a user may read."""
    found: set[str] = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    return found


def may_start(user: Any, dag_id: str) -> bool:
    """Say whether a user may start runs of a DAG."""
    return bool(
        get_auth_manager().is_authorized_dag(
            method="POST",
            access_entity=DagAccessEntity.RUN,
            details=DagDetails(id=dag_id),
            user=user,
        )
    )
