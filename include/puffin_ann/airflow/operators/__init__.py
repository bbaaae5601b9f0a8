"""Operators of the DAGs. Nothing of them is a template: what is declared is data, not code.

submit_stage    have a stage of a run submitted to Spark, by what `puffin_ann.airflow.submit` knows
publish         publish what a run made; tell Assets, metrics and lineage of it
approve_build   have a person approve a costly build
trigger_build   ask the build DAG of an index for a run; ask for one more run of a DAG
"""
