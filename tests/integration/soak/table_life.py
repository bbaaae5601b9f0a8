"""A machine that lives a table's life, with its indexes, and checks every promise at each step.

`TableLife` needs PyIceberg alone; in `SparkLife` it is Spark's own procedures that delete rows,
compact, analyse, expire and remove orphans.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import builds
import lives
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from lake_tables import delete_positions
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from puffin_ann import open_index
from puffin_ann.errors import IndexNotFoundError, PuffinAnnError
from puffin_ann.lake.index_snapshot import is_own_manifest_list
from puffin_ann.lake.listing import canonical, listed
from puffin_ann.lake.past import manifest_lists_of
from puffin_ann.lake.slots import slots
from puffin_ann.lifecycle import publish as publishing
from puffin_ann.lifecycle import stages
from puffin_ann.lifecycle.clean import clean
from puffin_ann.lifecycle.guard import guard
from puffin_ann.lifecycle.inventory import now_ms, take_inventory
from puffin_ann.lifecycle.retention import judge, names_of_snapshots, policies
from puffin_ann.lifecycle.runners import InProcess
from puffin_ann.settings import settings as library_settings

QUERIES = np.random.default_rng(11).normal(size=(2, builds.DIMENSION)).astype(np.float32)
PROPERTIES = {"write.parquet.row-group-limit": "7", "format-version": "2"}
STAGES = ("train", "assign", "build_group", "gate", "publish")
LOOKED_AT = 3
"""Snapshots looked at after each step beside those that branches and tags name."""

picks = st.integers(0, 10**6)


class Crash(BaseException):
    """The process dies here: nothing that catches `Exception` may go on."""


class TableLife(RuleBasedStateMachine):
    """By PyIceberg alone, or by its twins of what it cannot do."""

    @initialize(
        metric=st.sampled_from(["l2", "cosine", "ip"]),
        algorithm=st.sampled_from(["exact", "exact", "vamana"]),
    )
    def begin(self, metric, algorithm):
        self.folder = tempfile.TemporaryDirectory(prefix="life-")
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("puffin_ann.lake.publish.WAIT_SECONDS", 0.0)
        self.table = self._table()
        parameters = {} if algorithm == "exact" else {"R": 8, "L": 16, "pq_m": 4, "pq_nbits": 4}
        self.declared = {
            name: builds.declaration(
                name=name,
                table=".".join((self.table.catalog.name, *self.table.name())),
                metric=metric if name == "first" else "l2",
                algorithm=algorithm,
                parameters=parameters,
                recall_target=0.5,
            )
            for name in ("first", "second")
        }
        self.next_id, self.runs = 0, 0
        self.oracle: dict[int, Any] = {}
        self.visible: set[str] = set()
        self.anchored = False
        self.crashed: dict | None = None
        self.held = None
        self._append(20)
        self._build("first")

    def _table(self) -> Table:
        where = Path(self.folder.name)
        self.patch.setenv("PUFFIN_ANN_CACHE_DIR", str(where / "cache"))
        library_settings.cache_clear()
        self.patch.setenv("PYICEBERG_CATALOG__TEST__TYPE", "sql")
        self.patch.setenv("PYICEBERG_CATALOG__TEST__URI", f"sqlite:///{where}/catalog.db")
        self.patch.setenv("PYICEBERG_CATALOG__TEST__WAREHOUSE", f"file://{where}/warehouse")
        self.patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        catalog = load_catalog("test")
        catalog.create_namespace("demo")
        return catalog.create_table("demo.words", builds.rows([]).schema, properties=PROPERTIES)

    # What people do to the data.

    @rule(count=st.integers(1, 15))
    def append(self, count):
        self._append(count)

    @rule(chosen=st.lists(picks, min_size=1, max_size=8))
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

    # What others do to registrations and files.

    @rule(pick=picks)
    def analyse(self, pick):
        snapshots = self.table.snapshots()
        chosen = snapshots[-1 - pick % min(3, len(snapshots))].snapshot_id
        lives.analyse(self.table, chosen)
        self._attacked()

    @precondition(lambda self: len(self.table.metadata.statistics) > 0)
    @rule(pick=picks)
    def lose_a_registration(self, pick):
        entries = self.table.metadata.statistics
        lives.drop_registration(self.table, entries[pick % len(entries)].snapshot_id)
        self._attacked()

    @rule(keep=st.integers(1, 4))
    def expire(self, keep):
        """Expire but the newest ancestors of the head, after the guard ran."""
        self._guarded()
        line = {one.snapshot_id for one in list(_ancestors(self.table))[:keep]}
        named = {ref.snapshot_id for ref in self.table.refs().values()}
        before = _registered(self.table)
        gone = [
            one.snapshot_id for one in self.table.snapshots() if one.snapshot_id not in line | named
        ]
        if gone:
            self.table.maintenance.expire_snapshots().by_ids(gone).commit()
            self.table.refresh()
        for path in before - _registered(self.table):  # as Iceberg's Java does
            if self.table.io.new_input(path).exists():
                self.table.io.delete(path)
        self.held = None  # what it would register may be gone

    @rule()
    def remove_orphans(self):
        """Remove everything that the metadata does not reach, however new; the guard ran before."""
        self._guarded()
        self._remove_orphans()
        self.held = None

    def _remove_orphans(self):
        remove_orphans(self.table)

    # What we do.

    @precondition(lambda self: self._rows() >= 8)
    @rule(name=st.sampled_from(["first", "second"]))
    def build(self, name):
        self._build(name)

    @precondition(lambda self: self._rows() >= 8)
    @rule(name=st.sampled_from(["first", "second"]), count=st.integers(1, 5))
    def build_while_the_table_moves(self, name, count):
        plan = self._staged(name)
        commit = publishing.commit
        moved = []

        def overtaken(*arguments, **options):
            if not moved:
                moved.append(True)
                self._append(count, self.table.catalog.load_table(self.table.name()))
            return commit(*arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("puffin_ann.lifecycle.publish.commit", overtaken)
            self._publish(plan, name)

    @precondition(lambda self: self._rows() >= 8)
    @rule(name=st.sampled_from(["first", "second"]), before=st.sampled_from(STAGES))
    def build_while_orphans_are_removed(self, name, before):
        self._guarded()
        self._publish(self._staged(name, orphans_removed_before=before), name)
        self.held = None

    @precondition(lambda self: self._rows() >= 8)
    @rule(
        name=st.sampled_from(["first", "second"]),
        step=st.sampled_from(["stages", "assembled", "committed", "request", "reply", "late"]),
    )
    def crash(self, name, step):
        plan = self._staged(name)
        if step != "stages":
            with pytest.MonkeyPatch.context() as patch:
                self._break(patch, step)
                with suppress(Crash, PuffinAnnError):
                    builds.run.publish(plan["table"], plan["plan"])
        self.crashed = {**plan, "name": name}
        self.table.refresh()
        self.anchored = False

    def _break(self, patch, step):
        def die(*_, **__):
            raise Crash

        catalog_type = type(self.table.catalog)
        send = catalog_type.commit_table

        def lost(catalog, *arguments):
            if step == "reply":
                send(catalog, *arguments)
            if step == "late" and self.held is None:
                self.held = lambda: send(catalog, *arguments)
            raise ConnectionError("no answer")

        if step == "assembled":
            patch.setattr("puffin_ann.lifecycle.publish.commit", die)
        elif step == "committed":
            patch.setattr("puffin_ann.lifecycle.publish.store", die)
        else:
            patch.setattr(catalog_type, "commit_table", lost)

    @precondition(lambda self: self.crashed is not None)
    @rule()
    def try_again(self):
        plan, self.crashed = self.crashed, None
        with suppress(PuffinAnnError):  # its staging may have been removed as an orphan
            self._publish(plan, plan["name"])
        self.table.refresh()
        self.anchored = False

    @precondition(lambda self: self.held is not None)
    @rule()
    def land_late(self):
        release, self.held = self.held, None
        with suppress(CommitFailedException):
            release()
        self.table.refresh()
        self.anchored = False

    @rule()
    def guard(self):
        self.anchored = False
        self._guarded()

    @rule(hours=st.sampled_from([0, 25]))
    def clean(self, hours):
        at = now_ms() + hours * lives.HOUR_MS
        told = clean(self.table, self.declared.values(), at_ms=at, dry_run=True)
        before = self._all_files()
        done = clean(self.table, self.declared.values(), at_ms=at)
        assert [one.location for one in told.gone] == [one.location for one in done.gone]
        assert done.failed == ()
        self.table.refresh()
        if hours:
            self.held = None  # the request has timed out long since
            self._assert_nothing_leaks()
        else:
            assert self._all_files() >= before - _metadata_files(before)
        self.anchored = False

    # What must hold.

    @invariant()
    def every_snapshot_is_answered_right(self):
        for name in sorted(self.declared):
            for snapshot_id in self._looked_at():
                rows = self._live(snapshot_id)
                if not len(rows[0]):
                    continue
                try:
                    index = open_index(self.table, name, snapshot_id)
                except IndexNotFoundError:
                    assert name not in self.visible, f"index {name!r} is lost"
                    break
                builds.assert_answers_are(index, rows, QUERIES, 3)
                builds.assert_answers_are(index, rows, QUERIES[:1], len(rows[0]) + 3)

    @invariant()
    def every_registered_file_is_there(self):
        for path in _registered(self.table):
            assert self.table.io.new_input(path).exists(), f"{path} is registered and gone"

    def teardown(self):
        if hasattr(self, "patch"):
            self.patch.undo()
            library_settings.cache_clear()
            self.folder.cleanup()

    # How it is done.

    def _append(self, count, table=None):
        (table or self.table).append(builds.rows(range(self.next_id, self.next_id + count)))
        self.next_id += count
        self._changed()

    def _changed(self):
        self.table.refresh()
        self.anchored = False

    def _attacked(self):
        """Until the guard runs, or a build, an index need not be found."""
        self.table.refresh()
        self.visible, self.anchored = set(), False

    def _guarded(self):
        if not self.anchored:
            report = guard(self.table, self.declared.values())
            assert report.lost == ()
            self.table.refresh()
            assert guard(self.table, self.declared.values()).actions == (), "guarding did not end"
            self.anchored = True
            self.visible = {one for one in self.declared if one in self._ever()}

    def _ever(self) -> set[str]:
        return {held.index for one in take_inventory(self.table).published for held in one.holds}

    def _staged(self, name, orphans_removed_before=None):
        self.runs += 1
        plan = builds.run.plan_build(
            self.declared[name], run_id=f"run-{self.runs}", overrides={"force": True}
        )
        runner, where = InProcess(), (plan["table"], plan["plan"])
        for stage in STAGES:
            if stage == orphans_removed_before:
                self._remove_orphans()
            if stage == "build_group":
                for group in plan["groups"]:
                    stages.build_group(runner, *where, group)
            elif stage != "publish":
                getattr(stages, stage)(runner, *where)
        return plan

    def _publish(self, plan, name):
        builds.run.publish(plan["table"], plan["plan"])
        builds.run.report(plan["table"], plan["plan"])
        self.table.refresh()
        self.visible.add(name)
        self.anchored = False

    def _build(self, name):
        self._publish(self._staged(name), name)

    def _rows(self) -> int:
        return len(self._live(self.table.current_snapshot().snapshot_id)[0])

    def _live(self, snapshot_id):
        """What the oracle says of a snapshot; snapshots never change."""
        if snapshot_id not in self.oracle:
            self.oracle[snapshot_id] = builds.live(self.table, snapshot_id)
        return self.oracle[snapshot_id]

    def _looked_at(self) -> set[int]:
        newest = [one.snapshot_id for one in self.table.snapshots()][-LOOKED_AT:]
        named = [ref.snapshot_id for ref in self.table.refs().values()][:LOOKED_AT]
        return {self.table.current_snapshot().snapshot_id, *newest, *named}

    def _all_files(self) -> set[str]:
        return {one.uri for one in listed(self.table.io, self.table.location(), recursive=True)}

    def _assert_nothing_leaks(self):
        """All grace being over, only what is needed is there."""
        inventory = take_inventory(self.table)
        files = inventory.published
        kept = judge(
            files,
            policies(self.declared.values(), files),
            names_of_snapshots(inventory.table),
        )
        needed = {canonical(one.file.path) for one in kept if one.is_kept}
        here = {canonical(path) for path in lives.index_files(self.table)}
        assert here <= needed, "index files are left that nothing needs"
        held = {held.index for file in files for held in file.holds}
        assert len(here) <= 2 * len(held) + len(self.table.refs()) * len(held)
        everything = self._all_files()
        assert not [path for path in everything if "/ann-staging/" in path]
        lists = {canonical(one.manifest_list) for one in self.table.snapshots()}
        stray = {
            path
            for path in everything
            if is_own_manifest_list(path.rpartition("/")[2]) and canonical(path) not in lists
        }
        assert stray <= manifest_lists_of(self.table), "manifest lists of ours are left"


def _ancestors(table):
    by_id = {one.snapshot_id: one for one in table.snapshots()}
    at = table.current_snapshot()
    while at is not None:
        yield at
        at = by_id.get(at.parent_snapshot_id)


def _registered(table) -> set[str]:
    return {entry.statistics_path for entry in slots(table).values()}


def _metadata_files(paths) -> set[str]:
    return {path for path in paths if path.endswith(".metadata.json")}


def remove_orphans(table) -> None:
    """What Iceberg's action does with `older_than` now: a twin of Java's, for tables on disk."""
    reached = {canonical(path) for path in _reached(table)}
    for one in listed(table.io, table.location(), recursive=True):
        inside = one.uri[len(table.location()) :].split("/")
        is_hidden = any(part.startswith(("_", ".")) for part in inside)
        if canonical(one.uri) not in reached and not is_hidden:
            table.io.delete(one.uri)


def _reached(table):
    yield table.metadata_location
    yield from (one.metadata_file for one in table.metadata.metadata_log)
    yield from _registered(table)
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path
