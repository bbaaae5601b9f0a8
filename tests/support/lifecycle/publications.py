"""Publications of small indexes, ready to be sent, and what must hold after them."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
from pyiceberg.table import Table

from puffin_ann import open_index
from puffin_ann.lake.commit.tagged_snapshot import is_own_manifest_list
from puffin_ann.lifecycle.documents.run import (
    GATE,
    PLAN,
    Gated,
    PlanPointer,
    PublishedVersion,
    load,
    store,
)
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.publish import assemble as publishing
from puffin_ann.lifecycle.publish.assemble import publish_run
from puffin_ann.lifecycle.runs import build
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.search.version.versions import find_versions
from tests.support.lifecycle import builds
from tests.support.servers.lakes import Lake, plain

QUERIES = np.random.default_rng(5).normal(size=(3, builds.DIMENSION)).astype(np.float32)


def staged(
    lake: Lake, *, name: str = builds.INDEX, run_id: str = "run", **declared: Any
) -> PlanPointer:
    """A build of an index of `words`, all but its publication."""
    declaration = builds.declaration(name=name, table=lake.named(), **declared)
    plan = build.plan_build(declaration, run_id=run_id, overrides={"force": True})
    builds.run_stages(plan)
    return plan


def another_run(plan: PlanPointer, run_id: str) -> PlanPointer:
    """A run of its own that has come to the same staged index, without building it once more."""
    first = Workspace.open(RunRef.planned(plan))
    second = Workspace(first.table, replace(first.run, run_id=run_id))
    store(second.staging, PLAN, first.build_plan.model_copy(update={"run_id": run_id}))
    store(second.staging, GATE, load(first.staging, GATE, Gated))
    return plan.model_copy(update={"run_id": run_id, "plan": second.run.plan})


def publish(plan: PlanPointer) -> PublishedVersion:
    """Publish as a run does that has no lease, or was taken for dead: leases only save work."""
    return publish_run(Workspace.open(RunRef.planned(plan)))


def runs_published(table: Table, index: str = builds.INDEX) -> list[str]:
    """Run ids of the snapshots that published an index, the oldest first."""
    key = f"ann.{index}.run-id"
    summaries = [snapshot.summary.additional_properties for snapshot in table.refresh().snapshots()]
    return [summary[key] for summary in summaries if key in summary]


def assert_sound(lake: Lake, *names: str, unclear: bool = False, raced: bool = False) -> Table:
    """Every index answers as brute force does, and no file is leaked or lost.

    Manifest lists of requests whose answer was lost (`unclear`) stay until clean-up: they must not
    be deleted as long as such a request might land. Where several published at once (`raced`), a
    catalog over SQL leaves the metadata file of a refused request where it lies, and nobody can
    tell it from one that another catalog points to: clean-up removes what such a file names once
    it is told to forget it.
    """
    table = lake.load()
    current = table.current_snapshot().snapshot_id
    for name in names or (builds.INDEX,):
        assert find_versions(table, name).problems == ()
        builds.assert_answers(open_index(table, name), table, current, QUERIES, 4)
    for entry in table.metadata.statistics:
        assert table.io.new_input(entry.statistics_path).exists()
    leaked = {location for location in lake.leaked(table) if "/_ann-staging/" not in location}
    if unclear:
        leaked = {
            location for location in leaked if not is_own_manifest_list(location.rsplit("/", 1)[1])
        }
    if raced and leaked:
        later = int(time.time() * 1000) + 2 * 86_400_000
        strays = sorted(stray_metadata(lake, table))
        report = clean(table, dry_run=True, at_ms=later, forget=strays)
        leaked -= {plain(removed.location) for removed in report.gone}
    assert not leaked
    return table


def stray_metadata(lake: Lake, table: Table) -> set[str]:
    """Metadata files under the table's location that are not of its history."""
    own = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    written = {file for file in lake.files(table) if file.endswith(".metadata.json")}
    return written - {plain(file) for file in own}


def overtake(monkeypatch, change) -> list:
    """Have the table changed between the first assembly and its commit; gives the commits."""
    commit, calls = publishing._commit, []

    def overtaken(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            change()
        return commit(*arguments)

    monkeypatch.setattr(publishing, "_commit", overtaken)
    return calls
