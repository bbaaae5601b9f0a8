"""What others do to a table's registrations, snapshots and files."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.metadata.own_tags import held_files
from puffin_ann.lake.store.listing import canonical, list_objects
from puffin_ann.lifecycle.versions.inventory import live_files, take_inventory
from tests.property.data_rules import picks
from tests.support.lake import table_events
from tests.support.lake.orphans_by_name import remove_by_name


class OthersRules:
    """Statistics, lost registrations, expiry, removal of orphans."""

    @rule(pick=picks)
    def analyse(self, pick):
        snapshots = self.table.snapshots()
        chosen = snapshots[-1 - pick % min(3, len(snapshots))].snapshot_id
        table_events.analyse(self.table, chosen)
        self._attacked()

    @precondition(lambda self: len(self.table.metadata.statistics) > 0)
    @rule(pick=picks)
    def lose_a_registration(self, pick):
        entries = self.table.metadata.statistics
        table_events.drop_registration(self.table, entries[pick % len(entries)].snapshot_id)
        self._attacked()

    @rule(keep=st.integers(1, 4))
    def expire(self, keep):
        """Expire but the newest ancestors of the head."""
        self._made_safe()
        line = {ancestor.snapshot_id for ancestor in list(_ancestors(self.table))[:keep]}
        named = {ref.snapshot_id for ref in self.table.refs().values()}
        before = registered_paths(self.table)
        gone = [
            snapshot.snapshot_id
            for snapshot in self.table.snapshots()
            if snapshot.snapshot_id not in line | named
        ]
        if gone:
            self.table.maintenance.expire_snapshots().by_ids(gone).commit()
            self.table.refresh()
        for path in before - registered_paths(self.table):  # as Iceberg's Java does
            if self.table.io.new_input(path).exists():
                self.table.io.delete(path)
        self.held = None  # what it would register may be gone

    @rule(by_name=st.booleans())
    def remove_orphans(self, by_name):
        """Remove everything that the metadata does not reach, however new.

        By name, as Trino and StarRocks do, all that runs staged goes, too.
        """
        self._made_safe()
        if by_name:
            remove_by_name(self.table.refresh(), self._all_files())
            self.crashed = None
        else:
            self._remove_orphans()
        self.held = None

    def _made_safe(self):
        """Run the guard, unless tags of ours hold all that is needed: then nobody's help is."""
        inventory = take_inventory(self.table)
        live = live_files(inventory.published)
        needed = {canonical(file.path) for file in live.values()} | set(inventory.needed)
        if needed <= {canonical(path) for path in held_files(inventory.table)}:
            self.visible = {name for name in self.declared if name in live}
        else:
            self._guarded()

    def _remove_orphans(self):
        remove_orphans(self.table)


def _ancestors(table):
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
    at = table.current_snapshot()
    while at is not None:
        yield at
        at = by_id.get(at.parent_snapshot_id)


def registered_paths(table) -> set[str]:
    return {entry.statistics_path for entry in slots(table).values()}


def remove_orphans(table) -> None:
    """What Iceberg's action does with `older_than` now: the same as Java's, for tables on disk."""
    reached = {canonical(path) for path in _reached(table)}
    for list_stored_object in list_objects(table.io, table.location(), recursive=True):
        inside = list_stored_object.uri[len(table.location()) :].split("/")
        is_hidden = any(part.startswith(("_", ".")) for part in inside)
        if canonical(list_stored_object.uri) not in reached and not is_hidden:
            table.io.delete(list_stored_object.uri)


def _reached(table):
    yield table.metadata_location
    yield from (entry.metadata_file for entry in table.metadata.metadata_log)
    yield from registered_paths(table)
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path
