"""What a stage is submitted to Spark by: chosen by name in a declaration.

submission     what is submitted, whatever submits it: the interface of backends
backends       the names there are: those of this package, and those that a DAG file registers
spark_submit   `spark_submit`: Airflow's operator for the command of that name
spark_output   what `spark-submit` prints: into the task's log, or into a file that this names
livy           `livy`: Apache Livy, over HTTP
connections    Airflow's connections: the one that names Spark's master, or Livy

Backends are imported when a task runs: to parse a DAG file needs none of their providers.
"""
