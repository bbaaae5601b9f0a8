"""Operators of the DAGs. Nothing of them is a template: what is declared is data, not code.

submit_stage       submit a stage of a run to Spark, and tell its failure by its own last line
spark_connection   where Spark is: the connection, the commands, the executors' environment
trigger_build      ask the build DAG of an index for a run; ask for one more run of a DAG
"""
