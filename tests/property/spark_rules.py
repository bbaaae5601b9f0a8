"""The rules of a table that Spark works on, too, with Iceberg's own procedures."""

import os
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import rule

from puffin_ann.moments import now_ms
from tests.property.table_rules import PROPERTIES, TableRules
from tests.support.lifecycle import builds
from tests.support.servers.lakes import Lake

LATER = "TIMESTAMP '2100-01-01 00:00:00'"


class SparkRules(TableRules):
    """What people and others do is done by Spark, but for rollbacks and names."""

    lake: ClassVar[Lake]

    def _table(self):
        self.name = f"t{os.urandom(6).hex()}"
        properties = {**PROPERTIES, "write.delete.mode": "merge-on-read"}
        return self.lake.catalog.create_table(
            (self.lake.namespace, self.name), builds.rows([]).schema, properties=properties
        )

    def _sql(self, statement):
        self.lake.sql(statement, self.name)

    @rule(start=st.integers(0, 60), step=st.integers(2, 9))
    def delete_by_spark(self, start, step):
        self._sql(f"DELETE FROM {{t}} WHERE id >= {start} AND id % {step} = 1")
        self._changed()

    @rule(mode=st.sampled_from(["merge-on-read", "copy-on-write"]), start=st.integers(0, 60))
    def update_by_spark(self, mode, start):
        self._sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.update.mode'='{mode}')")
        self._sql(f"UPDATE {{t}} SET word = 'new' WHERE id BETWEEN {start} AND {start + 5}")
        self._changed()

    @rule()
    def compact(self):
        self._sql(
            "CALL {c}.system.rewrite_data_files(table => '{n}', "
            "options => map('rewrite-all', 'true'))"
        )
        self._changed()

    def _fast_forward(self, branch):
        self._sql(f"CALL {{c}}.system.fast_forward('{{n}}', 'main', '{branch}')")

    @rule(count=st.integers(8, 15))
    def replace(self, count):
        self.table.append(builds.rows(range(self.next_id, self.next_id + count)))
        self.next_id += count
        self._sql("CREATE OR REPLACE TABLE {t} USING iceberg AS SELECT * FROM {t}")
        self._changed()

    @rule()
    def rewrite_manifests(self):
        self._sql("CALL {c}.system.rewrite_manifests('{n}')")
        self._changed()

    @rule(pick=st.integers(0, 10**6))
    def analyse(self, pick):
        snapshots = self.table.snapshots()
        chosen = snapshots[-1 - pick % min(3, len(snapshots))].snapshot_id
        self._sql(
            "CALL {c}.system.compute_table_stats(table => '{n}', "
            f"snapshot_id => {chosen}, columns => array('id'))"
        )
        self._attacked()

    @rule(keep=st.integers(1, 4))
    def expire(self, keep):
        self._made_safe()
        self._sql(
            "CALL {c}.system.expire_snapshots(table => '{n}', "
            f"older_than => {LATER}, retain_last => {keep})"
        )
        self.table.refresh()
        self.held = None

    def _remove_orphans(self):
        jvm = self.lake.spark.sparkContext._jvm
        session = self.lake.spark._jsparkSession
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            session, self.lake.named(self.name)
        )
        actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(session)
        action = actions.deleteOrphanFiles(table).olderThan(now_ms() + 10_000)
        if self.lake.on_s3:  # Hadoop, by which it lists otherwise, knows no s3
            action = action.usePrefixListing(True)
        action.execute()

    def teardown(self):
        if hasattr(self, "name"):
            self._sql("DROP TABLE IF EXISTS {t} PURGE")
        super().teardown()
