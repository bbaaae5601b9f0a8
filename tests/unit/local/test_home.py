"""The folder that the demo and a local Airflow live in."""

from home import environment


def test_a_dag_that_the_demo_ran_is_not_paused_when_airflow_is_started(tmp_path):
    """Airflow asks when it first sees a DAG; its own default is to pause it."""
    assert environment(tmp_path)["AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION"] == "False"
