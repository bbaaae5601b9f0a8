"""The DAGs of the declared indexes, four for each, made again whenever Airflow parses a DAG file.

    factory         reads the declarations and makes the DAGs that are asked for
    build           ann_build_<index>: plan, train, assign, build shards, measure, publish
    refresh         ann_refresh_<index>: runs when the table changes
    maintain        ann_maintain_<index>: guard, merges and rebuilds that are due, clean-up
    evaluate        ann_evaluate_<index>: recall of what is published
    collect         ann_collect_<DAG file>: how all indexes stand, for the page
    invalid         the DAG that stands for a declaration that is not valid
    refresh_tasks   the tasks that `refresh` and `maintain` share
    lease_tasks     the tasks that begin and end a run that writes
    settings        the arguments that every DAG has

A DAG file calls `factory.index_dags` and puts what it returns into its globals. The tasks only
sequence and retry: what they do is in `puffin_ann.lifecycle.runs`, imported when a task runs.
"""
