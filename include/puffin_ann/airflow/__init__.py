"""What Airflow runs: DAGs of the declared indexes, sensors for DAGs of your own, a page.

The one package of the library that imports Airflow. What runs and what is written to a table is in
`puffin_ann.lifecycle`; here is when, by whom, and how a failure is told.

    dags        the DAGs of each declared index: build, refresh, maintain, evaluate
    operators   submit a stage to Spark; ask for runs
    assets      one Asset for each watched table, which starts refreshes
    sensors     wait until an index has fallen behind, or holds too many deleted rows
    triggers    watch tables and indexes in the triggerer
    page        the page *Vector indexes* of Airflow's user interface
    forms       trigger forms, with the bounds of the declaration
    failures    how a task fails: for good or to be tried again, and what its log says
    dag_ids     ids and tags of the DAGs

Airflow parses DAG files every few seconds and imports plugins in every process. So a module here
imports no more than Airflow, pydantic and YAML at its top, other than `triggers` and
`page.application`, which only the triggerer and the API server import.

What a deployment has of its own is a DAG file that calls `dags.factory.index_dags` (as
`dags/vector_indexes.py` does) and a plugin file that imports `page.plugin.PuffinAnnPlugin`.
"""
