"""The life of an index, from the first build to the day it is dropped.

An index is planned and built, published, then refreshed and published again for as long as the
table changes; what is published is maintained, measured and told; in the end it is dropped. These
are the packages; each imports only from those below it:

    runs        what the command line, the DAGs and spark-submit call: one file per command
    report      tell: status, history, staleness, a preview of the next run; a catalog's tables
    declare     write the first declaration for a table, or a table of a file; beside `report`
    maintain    keep what is published registered, sound and small; rename and drop indexes
    publish     assemble one Puffin file and commit it to the table
    refresh     make a new version out of the newest one and what changed since
    build       build a whole index: plan, train, assign, build shards, measure
    evaluate    measure recall: exact answers, the measurement, the choice of a search width
    retention   decide which files may go, and why others must stay
    versions    read the published versions: their files, the state a refresh starts from
    ingest      read rows of the table: checked, sampled, staged by shard
    spark       start Spark and its Python workers; run tasks on executors
    runtime     what every stage opens first: workspace, leases, heartbeat, runners
    documents   what the stages of a run hand each other, as JSON; keys of an index's properties
    policy      decide what a refresh does: pure functions of data

Which file a command or a task enters first:

    puffin-ann quickstart  declare.import_parquet, declare.look, then runs.in_process
    puffin-ann init        declare.look, declare.suggest, declare.write
    puffin-ann list        report.overview
    puffin-ann build       runs.build, build.stages, runs.publish
    puffin-ann refresh     runs.in_process, which calls runs.refresh and refresh.stages
    puffin-ann plan        report.preview
    puffin-ann status      report.status
    puffin-ann history     report.history
    puffin-ann evaluate    runs.evaluate, evaluate.stages, evaluate.user_queries
    puffin-ann maintain    runs.maintain
    puffin-ann doctor      maintain.doctor
    puffin-ann clean       maintain.clean
    puffin-ann drop        maintain.drop
    puffin-ann rename      maintain.rename
    the build DAG          runs.build, then runs.spark_app with build.stages, then runs.publish
    the refresh DAG        runs.refresh, then runs.spark_app with refresh.stages, then runs.publish
    the maintain DAG       runs.maintain, which calls maintain.guard and maintain.clean
    the evaluate DAG       runs.evaluate, then runs.spark_app with evaluate.stages
    the sensors            report.staleness
"""
