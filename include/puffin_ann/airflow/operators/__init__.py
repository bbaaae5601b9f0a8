"""Operators of the DAGs. Nothing of them is a template: what is declared is data, not code.

submit_stage    have a stage of a run submitted to Spark, by what `puffin_ann.airflow.submit` knows
trigger_build   ask the build DAG of an index for a run; ask for one more run of a DAG
"""
