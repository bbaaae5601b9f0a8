"""What we do: builds, refreshes, crashes at every step of publishing, the guard, the clean-up."""

from contextlib import suppress

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from pyiceberg.exceptions import CommitFailedException

from puffin_ann import open_index
from puffin_ann.declaration import RefreshOptions
from puffin_ann.errors import PuffinAnnError
from puffin_ann.lifecycle.build import stages
from puffin_ann.lifecycle.documents.run import PUBLISH
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.drop import drop
from puffin_ann.lifecycle.maintain.gather import gather
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.maintain.rename import rename
from puffin_ann.lifecycle.publish import assemble as publishing
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.lifecycle.versions.inventory import take_inventory
from puffin_ann.moments import now_ms
from puffin_ann.search.version.versions import all_index_names
from tests.support.lake import table_events
from tests.support.lifecycle import builds

STAGES = ("train", "assign", "build_group", "gate", "publish")


roles = st.sampled_from(["first", "second"])


class Crash(BaseException):
    """The process dies here: nothing that catches `Exception` may go on."""


class RunRules:
    """Runs of two indexes, `first` and `second`."""

    @precondition(lambda self: self._rows() >= 8)
    @rule(role=roles)
    def build(self, role):
        self._build(self.called[role])

    @precondition(lambda self: self.visible)
    @rule(pick=st.integers(0, 1), ratio=st.sampled_from([0.0, 0.3, 1.0]), window=st.booleans())
    def refresh(self, pick, ratio, window):
        """Bring an index up to date; deltas stay, or are merged above a ratio."""
        name = sorted(self.visible)[pick % len(self.visible)]
        self.runs += 1
        options = RefreshOptions(min_rows=0, max_lag="0s", delta_ratio=ratio)
        declared = self.declared[name].model_copy(update={"refresh": options})
        refresh_in_process(declared, run_id=f"run-{self.runs}", maintenance=window)
        self._changed()

    @precondition(lambda self: self._rows() >= 8)
    @rule(role=roles, count=st.integers(1, 5))
    def build_while_the_table_moves(self, role, count):
        name = self.called[role]
        plan = self._staged(name)
        commit = publishing.commit_index_file
        moved = []

        def overtaken(*arguments, **options):
            if not moved:
                moved.append(True)
                self._append(count, self.table.catalog.load_table(self.table.name()))
            return commit(*arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("puffin_ann.lifecycle.publish.assemble.commit_index_file", overtaken)
            self._publish(plan, name)

    @precondition(lambda self: self._rows() >= 8)
    @rule(role=roles, before=st.sampled_from(STAGES))
    def build_while_orphans_are_removed(self, role, before):
        name = self.called[role]
        self._guarded()
        self._publish(self._staged(name, orphans_removed_before=before), name)
        self.held = None

    @precondition(lambda self: self._rows() >= 8)
    @rule(
        role=roles,
        step=st.sampled_from(["stages", "assembled", "committed", "request", "reply", "late"]),
    )
    def crash(self, role, step):
        name = self.called[role]
        plan, self.attacked = self._staged(name), False
        if step != "stages":
            with pytest.MonkeyPatch.context() as patch:
                self._break(patch, step)
                with suppress(Crash, PuffinAnnError):
                    builds.publish.publish(RunRef.planned(plan))
        self.crashed = plan, name
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
            patch.setattr("puffin_ann.lifecycle.publish.assemble.commit_index_file", die)
        elif step == "committed":
            patch.setattr("puffin_ann.lifecycle.publish.assemble.store", die)
        else:
            patch.setattr(catalog_type, "commit_table", lost)

    @precondition(lambda self: self.crashed is not None)
    @rule()
    def try_again(self):
        (plan, name), self.crashed = self.crashed, None
        found = set(self.visible)
        finished = Workspace.open(RunRef.planned(plan)).staging.exists(PUBLISH)
        with suppress(PuffinAnnError):  # its staging may have been removed as an orphan
            self._publish(plan, name)
        if self.attacked or finished:  # what was published before may be lost or dropped since
            self.visible = found
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

    @precondition(lambda self: self.visible)
    @rule(pick=st.integers(0, 1))
    def gather(self, pick):
        name = sorted(self.visible)[pick % len(self.visible)]
        gather(self.table, name)
        self._changed()
        assert open_index(self.table, name).version.needs == frozenset()

    @rule(role=roles)
    def rename(self, role):
        """Give an index its other name, or the one back that it had."""
        before = self.called[role]
        after = role if before != role else f"{role}_renamed"
        if before not in self.visible or after in all_index_names(self.table):
            return  # where a commit of another name landed late, or was tried again
        declared = self.declared.pop(before).model_copy(update={"name": after})
        self.declared[after], self.called[role] = declared, after
        rename(before, declared, self.declared.values())
        self.visible = self.visible - {before} | {after}
        if self.crashed is not None and self.crashed[1] == before:
            self.crashed = None
        self._changed()

    @precondition(lambda self: self.visible)
    @rule(pick=st.integers(0, 1))
    def drop(self, pick):
        name = sorted(self.visible)[pick % len(self.visible)]
        drop(self.table, name, self.declared.values(), force=True)
        self.visible.discard(name)
        self._changed()

    @rule()
    def guard(self):
        self.anchored = False
        self._guarded()

    @rule(hours=st.sampled_from([0, 25]))
    def clean(self, hours):
        at = now_ms() + hours * table_events.HOUR_MS
        told = clean(self.table, self.declared.values(), at_ms=at, dry_run=True)
        before = self._all_files()
        done = clean(self.table, self.declared.values(), at_ms=at)
        assert [orphan.location for orphan in told.gone] == [
            orphan.location for orphan in done.gone
        ]
        assert done.failed == ()
        self.table.refresh()
        if hours:
            self.held = None  # the request has timed out long since
            self._assert_nothing_leaks()
        else:
            assert self._all_files() >= before - _metadata_files(before)
        self.anchored = False

    def _guarded(self):
        if not self.anchored:
            report = guard(self.table, self.declared.values())
            assert report.lost == ()
            self.table.refresh()
            assert guard(self.table, self.declared.values()).actions == (), "guarding did not end"
            self.anchored = True
            self.visible = {name for name in self.declared if name in self._ever()}

    def _ever(self) -> set[str]:
        return {held.index for file in take_inventory(self.table).published for held in file.holds}

    def _staged(self, name, orphans_removed_before=None):
        self.runs += 1
        plan = builds.run.plan_build(
            self.declared[name], run_id=f"run-{self.runs}", overrides={"force": True}
        )
        runner, run = InProcess(), RunRef.planned(plan)
        for stage in STAGES:
            if stage == orphans_removed_before:
                self._remove_orphans()
            if stage == "build_group":
                for group in plan.groups:
                    stages.build_group(runner, run, group)
            elif stage != "publish":
                getattr(stages, stage)(runner, run)
        return plan

    def _publish(self, plan, name):
        builds.publish.publish(RunRef.planned(plan))
        builds.publish.report(plan)
        self.table.refresh()
        self.visible.add(name)
        self.anchored = False

    def _build(self, name):
        self._publish(self._staged(name), name)

    def _rows(self) -> int:
        return len(self._live(self.table.current_snapshot().snapshot_id)[0])


def _metadata_files(paths) -> set[str]:
    return {path for path in paths if path.endswith(".metadata.json")}
