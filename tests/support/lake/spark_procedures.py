"""Iceberg's own maintenance procedures, as Spark runs them."""

from puffin_ann.moments import now_ms

LATER = "TIMESTAMP '2100-01-01 00:00:00'"


def expire(lake):
    arguments = f"older_than => {LATER}, retain_last => 1"
    lake.sql(f"CALL {{c}}.system.expire_snapshots(table => '{{n}}', {arguments})")


def remove_orphans(lake):
    """The Java action, for everything older than now, which the SQL procedure refuses."""
    jvm = lake.spark.sparkContext._jvm
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        lake.spark._jsparkSession, lake.named()
    )
    action = jvm.org.apache.iceberg.spark.actions.SparkActions.get(lake.spark._jsparkSession)
    action = action.deleteOrphanFiles(loaded).olderThan(now_ms() + 10_000)
    if lake.on_s3:  # Hadoop, by which it lists otherwise, knows no s3
        action = action.usePrefixListing(True)
    action.execute()


def rewrite_data(lake):
    lake.sql(
        "CALL {c}.system.rewrite_data_files(table => '{n}', options => map('rewrite-all', 'true'))"
    )


def rewrite_manifests(lake):
    lake.sql("CALL {c}.system.rewrite_manifests('{n}')")


def analyse(lake):
    lake.sql("CALL {c}.system.compute_table_stats(table => '{n}', columns => array('id'))")


def delete_rows(lake):
    lake.sql("DELETE FROM {t} WHERE id % 9 = 2")
