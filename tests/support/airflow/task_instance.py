"""What a task of ours asks of Airflow's task instance."""

from types import SimpleNamespace


def task_instance(plan: str) -> SimpleNamespace:
    """The second attempt at a task of a run whose plan lies at a location."""
    return SimpleNamespace(
        xcom_pull=lambda task_ids: {"plan": plan},
        xcom_push=lambda **_: None,
        dag_id="ann_build_words",
        run_id="manual__1",
        task_id="train",
        map_index=-1,
        try_number=2,
        stats_tags={},
    )
