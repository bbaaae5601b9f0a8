"""The life of an index, from the first build to the day it is dropped.

An index is planned and built, published, then refreshed and published again for as long as the
table changes; what is published is maintained, measured and told; in the end it is dropped. These
are the packages; each imports only from those below it:

    runs        what the command line, the DAGs and spark-submit call: one file for each kind of run
    report      tell: status, history, staleness, a preview of the next run; a catalog's tables
    declare     write the first declaration for a table, or a table of a file; beside `report`
    maintain    keep what is published registered, sound and small; rename, gather and drop
    publish     assemble one Puffin file and commit it to the table
    refresh     make a new version out of a published one, its base version
    build       build a whole index: plan, train, assign, build shards, measure
    evaluate    measure recall: exact answers, the measurement, the choice of a search width
    retention   decide which files may go, and why others must stay
    versions    read the published versions: their files, the state a refresh starts from
    ingest      read rows of the table: checked, sampled, staged by shard
    spark       start Spark and its Python workers; run tasks on executors
    runtime     what every stage opens first: workspace, leases, heartbeat, runners
    documents   what the stages of a run hand each other, as JSON; keys of an index's properties
    policy      decide what a refresh does: pure functions of data

Which file a command enters first:

    puffin-ann quickstart  declare.import_parquet, declare.look, then runs.in_process
    puffin-ann init        declare.look, declare.suggest, declare.write
    puffin-ann list        report.list_tables
    puffin-ann build       runs.build, build.stages, runs.publish
    puffin-ann refresh     runs.in_process, which calls runs.refresh and refresh.stages
    puffin-ann plan        report.plan
    puffin-ann status      report.status
    puffin-ann history     report.history
    puffin-ann evaluate    runs.evaluate, evaluate.stages, evaluate.user_queries
    puffin-ann maintain    runs.maintain
    puffin-ann doctor      runs.maintain for what is declared, then runs.doctor
    puffin-ann clean       runs.maintain for what is declared, then maintain.clean;
                           with --location maintain.clean_location
    puffin-ann drop        maintain.drop
    puffin-ann rename      maintain.rename
    puffin-ann gather      maintain.gather

`puffin-ann search`, `warm`, `inspect`, `size` and `check` do without this package, and `compile`
only uses it as its users do. Which file a task of a DAG enters first; those on Spark come by way of
`runs.spark_app`:

    lease, release         runtime.leases
    plan                   runs.build, runs.refresh or runs.evaluate, by its DAG
    choose, deal_groups    nothing here: they read what `plan` returned
    train                  build.stages, build.train
    assign                 build.stages, build.assign
    build_shards           build.stages (its stage `build_group`), build.shard
    gate                   build.stages, build.gate
    read_changes           refresh.stages, refresh.read_changes
    apply_changes          refresh.stages (its stage `apply_group`), refresh.apply_changes
    build_anew             nothing here: it triggers the build DAG
    publish                runs.publish, publish.assemble (refresh.new_version), report.lineage
    report                 runs.publish, report.status
    guard, clean           runs.maintain, then maintain.guard or maintain.clean
    measure                evaluate.stages (its stage `evaluate`)
    judge                  runs.evaluate
    the sensors            report.staleness
"""

from puffin_ann import lake as lake  # before PyIceberg is imported: it sees to how that is
