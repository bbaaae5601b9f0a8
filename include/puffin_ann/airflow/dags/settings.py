"""The arguments that every DAG has."""

from datetime import timedelta
from typing import Any

from puffin_ann.airflow.failures import log_failure

SETTINGS: dict[str, Any] = {
    "catchup": False,
    "max_active_runs": 1,
    "default_args": {
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "on_failure_callback": log_failure,
        "on_retry_callback": log_failure,
    },
}
