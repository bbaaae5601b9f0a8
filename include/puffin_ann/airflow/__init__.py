"""What Airflow runs: DAGs of the declared indexes, sensors for DAGs of your own, a page.

The one package of the library that imports Airflow. What runs and what is written to a table is in
`puffin_ann.lifecycle`; here is when, by whom, and how a failure is told.

    dags        the DAGs of each declared index: build, refresh, maintain, evaluate
    operators   submit a stage to Spark; ask the build DAG for a run
    sensors     wait until an index has fallen behind, or holds too many deleted rows
    triggers    watch tables and indexes in the triggerer
    page        the page *Vector indexes* of Airflow's user interface

Airflow parses DAG files every few seconds and imports plugins in every process. So a module here
imports no more than Airflow, pydantic and YAML at its top, other than `triggers` and
`page.application`, which only the triggerer and the API server import.
"""
