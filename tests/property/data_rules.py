"""What people do to the data of a table."""

import os

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate

from tests.support.lake import row_changes
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds

picks = st.integers(0, 10**6)
"""A number of which something is chosen, whatever there is to choose from then."""

some_picks = st.lists(picks, min_size=1, max_size=8)


class DataRules:
    """Appends, deletes, updates, compaction, rollback, branches and tags, replaced tables."""

    @rule(count=st.integers(1, 15))
    def append(self, count):
        self._append(count)

    @rule(chosen=some_picks)
    def delete_merge_on_read(self, chosen):
        files = [task.file for task in self.table.scan().plan_files()]
        deletes: dict[str, list[int]] = {}
        for pick in chosen if files else []:
            file = files[pick % len(files)]
            deletes.setdefault(file.file_path, []).append(pick // 7 % file.record_count)
        if deletes:
            delete_positions(self.table, deletes)
            self._changed()

    @rule(start=st.integers(0, 60), length=st.integers(1, 10))
    def delete_copy_on_write(self, start, length):
        self.table.delete(f"id >= {start} and id < {start + length}")
        self._changed()

    @precondition(lambda self: self._rows() > 0)
    @rule(chosen=some_picks, columns=st.sampled_from(row_changes.KEYS))
    def delete_by_equality(self, chosen, columns):
        row_changes.delete_by_equality(self.table, self._ids(chosen), columns)
        self._changed()

    @precondition(lambda self: self._rows() > 0)
    @rule(chosen=some_picks, new=st.integers(0, 3), seed=st.sampled_from([None, 1, 2]))
    def upsert_by_equality(self, chosen, new, seed):
        """Rows get other words, by a seed other vectors, too; some are new."""
        rows = row_changes.changed(self.table, self._ids(chosen), seed)
        more = builds.rows(range(self.next_id, self.next_id + new)).cast(rows.schema)
        self.next_id += new
        row_changes.upsert(self.table, pa.concat_tables([rows, more]))
        self._changed()

    @precondition(lambda self: self._rows() > 0)
    @rule(chosen=some_picks, seed=st.sampled_from([None, None, 1]), merge_on_read=st.booleans())
    def update(self, chosen, seed, merge_on_read):
        """Rows get other words, and but for a seed keep their vectors."""
        rows = row_changes.changed(self.table, self._ids(chosen), seed)
        row_changes.update(self.table, rows, merge_on_read=merge_on_read)
        self._changed()

    @rule(count=st.integers(1, 15))
    def overwrite(self, count):
        self.table.overwrite(builds.rows(range(self.next_id, self.next_id + count)))
        self.next_id += count
        self._changed()

    @rule()
    def compact(self):
        data = self.table.scan().to_arrow()
        if len(data):
            self.table.overwrite(data)
            self._changed()

    @rule(pick=picks)
    def roll_back(self, pick):
        snapshots = self.table.snapshots()
        chosen = snapshots[pick % len(snapshots)].snapshot_id
        self.table.manage_snapshots().set_current_snapshot(snapshot_id=chosen).commit()
        self._changed()

    @rule(pick=picks, tag=st.booleans())
    def name_a_snapshot(self, pick, tag):
        snapshots = self.table.snapshots()
        chosen = snapshots[pick % len(snapshots)].snapshot_id
        name = f"ref{os.urandom(3).hex()}"
        manage = self.table.manage_snapshots()
        if tag:
            manage.create_tag(snapshot_id=chosen, tag_name=name).commit()
        else:
            manage.create_branch(snapshot_id=chosen, branch_name=name).commit()
        self._changed()

    @precondition(lambda self: len(self.table.refs()) > 1)
    @rule(pick=picks)
    def forget_a_name(self, pick):
        names = sorted(name for name in self.table.refs() if name != "main")
        name = names[pick % len(names)]
        ref = self.table.refs()[name]
        manage = self.table.manage_snapshots()
        if ref.snapshot_ref_type.value == "tag":
            manage.remove_tag(name).commit()
        else:
            manage.remove_branch(name).commit()
        self._changed()

    @precondition(lambda self: _branches(self.table))
    @rule(pick=picks, count=st.integers(1, 8))
    def append_to_a_branch(self, pick, count):
        names = _branches(self.table)
        self._append(count, branch=names[pick % len(names)])

    @precondition(lambda self: _ahead(self.table))
    @rule(pick=picks)
    def fast_forward(self, pick):
        """Main goes on to where a branch is that began at it."""
        names = _ahead(self.table)
        self._fast_forward(names[pick % len(names)])
        self._changed()

    def _fast_forward(self, branch):
        self.table.manage_snapshots().set_current_snapshot(ref_name=branch).commit()

    @rule(count=st.integers(8, 15))
    def replace(self, count):
        """Begin the table anew, as CREATE OR REPLACE TABLE AS SELECT does: main has no past."""
        main = RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"})
        same = AssertTableUUID(uuid=self.table.metadata.table_uuid)
        self.table.catalog.commit_table(self.table, (same,), (main,))
        self._append(count, self.table.refresh())

    def _ids(self, chosen):
        """Ids of some live rows."""
        live = self._live(self.table.current_snapshot().snapshot_id)[0].tolist()
        return {live[pick % len(live)] for pick in chosen}

    def _append(self, count, table=None, branch="main"):
        rows = builds.rows(range(self.next_id, self.next_id + count))
        (table or self.table).append(rows, branch=branch)
        self.next_id += count
        self._changed()


def _branches(table) -> list[str]:
    """Branches but main."""
    kinds = {name: ref.snapshot_ref_type.value for name, ref in table.refs().items()}
    return sorted(name for name, kind in kinds.items() if kind == "branch" and name != "main")


def _ahead(table) -> list[str]:
    """Branches of which the head is an ancestor."""
    head = table.current_snapshot()
    ends = {name: table.snapshot_by_id(table.refs()[name].snapshot_id) for name in _branches(table)}
    return [
        name
        for name, end in ends.items()
        if end != head and head in list(ancestors_of(end, table.metadata))
    ]
