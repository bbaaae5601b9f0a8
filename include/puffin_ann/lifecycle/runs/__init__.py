"""What the command line, the DAGs and spark-submit call: one file for each kind of run.

`build`, `refresh` and `evaluate` plan a run and stage its plan; the stages that follow are in the
packages of the same names. `publish` assembles and commits what a run made, reports on it and
clears its staging. `doctor` tells what is wrong and has it repaired, `maintain` is the whole
maintenance window, `in_process` a whole refresh in this process, and `expect_build` tells what a
whole build would cost. `spark_app` is the main function
of every Spark application, which leaves its `told_progress` and its `last_words` for the task that
submitted it.

In: a declaration or the name of a table, and a run id. Out: what Airflow hands from task to task, a
small JSON object that names the table and the plan.
"""
