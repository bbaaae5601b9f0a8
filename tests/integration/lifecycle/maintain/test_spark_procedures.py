"""Iceberg's own procedures, by Spark, against the live index, retention and running builds."""

import itertools
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_ann import open_index
from puffin_ann.errors import IndexNotFoundError
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lifecycle.build import stages
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.runs import build as run
from puffin_ann.lifecycle.runs import publish
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runtime.runners import InProcess
from tests.support.lake import table_events
from tests.support.lake.spark_procedures import (
    analyse,
    delete_rows,
    expire,
    remove_orphans,
    rewrite_data,
    rewrite_manifests,
)
from tests.support.lifecycle import builds
from tests.support.servers.lakes import plain

pytestmark = pytest.mark.slow


def declared(lake, **changes):
    return builds.declaration(table=lake.named(), **changes)


def build(lake, run: str, **changes):
    builds.build(declared(lake, **changes), run, {"force": True})
    return lake.load()


PROCEDURES = {
    procedure.__name__: procedure
    for procedure in (expire, remove_orphans, rewrite_data, rewrite_manifests, analyse, delete_rows)
}


def assert_alive(lake, *names):
    table = lake.load()
    head = table.current_snapshot().snapshot_id
    for name in names or (builds.INDEX,):
        builds.assert_answers(open_index(table, name), table, head, table_events.QUERIES, 5)


@pytest.mark.usefixtures("published_by_statistics")
def test_expiry_deletes_the_file_once_both_its_snapshots_are_gone(lake):
    """The fact that the guard stands on; without it the index is lost."""
    table = lake.create(builds.rows(range(60)))
    table = build(lake, "a")
    path = table_events.newest(table)
    table.append(builds.rows(range(60, 70)))
    expire(lake)
    assert not table.io.new_input(path).exists()
    with pytest.raises(IndexNotFoundError):
        open_index(lake.load(), builds.INDEX)


@pytest.mark.usefixtures("published_on_main")
def test_a_declared_index_that_statistics_and_expiry_took_is_told_as_lost(embedded_lake):
    lake = embedded_lake
    lake.create(builds.rows(range(60)))
    assert doctor(lake.load(), [declared(lake)]).problems_left == 0  # it is not built yet
    table = build(lake, "a")
    path = table_events.newest(table)
    analyse(lake)
    for _ in range(2):
        lake.sql("INSERT INTO {t} SELECT * FROM {t} WHERE id < 3")
    expire(lake)
    table = lake.load()
    assert not table.io.new_input(path).exists()
    (finding,) = (
        finding for finding in doctor(table, [declared(lake)]).findings if finding.is_problem
    )
    assert (finding.kind, finding.indexes) == ("lost", (builds.INDEX,))
    assert f"puffin-ann build {builds.INDEX}" in finding.remedy


@pytest.mark.long
@pytest.mark.usefixtures("published_by_statistics")
def test_expiry_spares_a_file_that_the_guard_registered_under_the_head(lake):
    lake.create(builds.rows(range(60)))
    table = build(lake, "a")
    table.append(builds.rows(range(60, 70)))
    guard(lake.load())
    expire(lake)
    assert len(lake.load().snapshots()) == 1
    assert_alive(lake)


@pytest.mark.long
@pytest.mark.parametrize(("where", "seed"), [("embedded_lake", 0), ("rest_lake", 1)])
def test_procedures_in_any_order_never_lose_the_live_index(request, where, seed):
    """The guard runs in between; the soak tries more orders."""
    lake = request.getfixturevalue(where)
    table = lake.create(builds.rows(range(60)))
    build(lake, "a")
    order = np.random.default_rng(seed).permutation(sorted(PROCEDURES)).tolist()
    for number, name in enumerate(order):
        guard(lake.load())
        PROCEDURES[name](lake)
        assert_alive(lake)
        if name in ("rewrite_data", "delete_rows"):
            table.refresh().append(builds.rows(range(100 + 10 * number, 103 + 10 * number)))
    guard(lake.load())
    assert_alive(lake)
    clean(lake.load(), [declared(lake)], grace="0s")
    remove_orphans(lake)
    assert_alive(lake)
    left = table_events.index_files(lake.load())
    assert left == {entry.statistics_path for entry in slots(lake.load()).values()} & left


@pytest.mark.long
@pytest.mark.usefixtures("published_by_statistics")
def test_analyse_and_expiry_find_the_index_published_again_with_the_statistics_visible(lake):
    lake.create(builds.rows(range(60)))
    build(lake, "a")
    analyse(lake)
    # No snapshot names the file: that another is registered in its place, nothing tells.
    (finding,) = [finding for finding in doctor(lake.named()).findings if finding.kind == "dropped"]
    assert finding.indexes == (builds.INDEX,)
    guard(lake.load())
    table = lake.load()
    (entry,) = [
        slot
        for slot in slots(table).values()
        if slot.snapshot_id == table.current_snapshot().snapshot_id
    ]
    assert [blob.properties["ndv"] for blob in entry.blob_metadata] == ["60"]
    expire(lake)
    assert_alive(lake)
    lake.sql("SELECT id, count(*) FROM {t} GROUP BY id")  # the optimizer reads the statistics


@pytest.mark.usefixtures("published_by_statistics")
def test_statistics_that_the_guard_overwrote_unseen_are_there_again(rest_lake, monkeypatch):
    """A REST catalog checks the head, not the slot: what came in between is found afterwards."""
    lake = rest_lake
    table = lake.create(builds.rows(range(60)))
    build(lake, "a")
    table.refresh().append(builds.rows(range(60, 70)))
    head = table.current_snapshot().snapshot_id
    theirs = []
    commit = type(table)._do_commit

    def overtaken(self, updates, requirements):
        if not theirs:
            theirs.append("")
            theirs[0] = table_events.analyse(lake.load(), head)
        return commit(self, updates, requirements)

    monkeypatch.setattr(type(table), "_do_commit", overtaken)
    guard(lake.load())
    (listed,) = slots(lake.load())[head].blob_metadata
    assert listed.properties["ndv"] == "42"
    expire(lake)
    assert_alive(lake)


def test_orphan_removal_between_runs_takes_nothing_of_the_index(lake):
    table = lake.create(builds.rows(range(60)))
    for name in "abc":
        build(lake, name)
        table.refresh().append(builds.rows(range(60, 63)))
    before = table_events.index_files(lake.load())
    remove_orphans(lake)
    assert table_events.index_files(lake.load()) == before
    clean(lake.load(), grace="0s")
    remove_orphans(lake)
    assert len(table_events.index_files(lake.load())) == 2
    assert_alive(lake)


@pytest.mark.long
def test_orphan_removal_during_a_build_takes_nothing_of_it(lake):
    lake.create(builds.rows(range(60)))
    runner, plan = InProcess(), run.plan_build(declared(lake), run_id="run")
    this_run = RunRef.planned(plan)
    works = [
        partial(stages.train, runner, this_run),
        partial(stages.assign, runner, this_run),
        *(partial(stages.build_group, runner, this_run, group) for group in plan.groups),
        partial(stages.gate, runner, this_run),
        partial(publish.publish, this_run),
    ]
    for work in works:
        remove_orphans(lake)
        work()
    publish.report(plan)
    assert_alive(lake)
    left = [path for path in lake.files(lake.load()) if "/_ann-staging/" in path]
    assert not [path for path in left if "/_lease-" not in path]


def test_a_dropped_and_purged_table_takes_its_index_along(lake):
    lake.create(builds.rows(range(60)))
    table = build(lake, "a")
    path = table_events.newest(table)
    lake.sql("DROP TABLE {t} PURGE")
    assert not table.io.new_input(path).exists()


@pytest.mark.long
@pytest.mark.usefixtures("published_by_statistics")
def test_pairs_of_procedures_without_the_guard_are_healed_where_no_file_was_deleted(embedded_lake):
    """What deletes no file may come in any number before the guard."""
    lake = embedded_lake
    harmless = [analyse, rewrite_data, rewrite_manifests, delete_rows]
    lake.create(builds.rows(range(60)))
    build(lake, "a")
    for first, second in itertools.permutations(harmless, 2):
        first(lake)
        second(lake)
    guard(lake.load())
    expire(lake)
    assert_alive(lake)


def test_a_table_that_was_moved_is_searched_where_it_is_now(embedded_lake, tmp_path, monkeypatch):
    """Names within our files are relative, also those of the files that a version shares."""
    lake = embedded_lake
    monkeypatch.setenv("PUFFIN_ANN_WHOLE_FILE_BYTES", "0")
    lake.create(builds.rows(range(60)))
    kept = {"delta_ratio": 1.0, "min_rows": 0}
    build(lake, "a", refresh=kept)
    for number in range(2):
        lake.load().append(builds.rows(range(60 + 20 * number, 80 + 20 * number)))
        lake.load().delete(f"id < {5 * number + 5}")
        refresh_in_process(declared(lake, refresh=kept), run_id=f"b{number}", force=True)
    before = open_index(lake.load(), builds.INDEX)
    assert before.version.needs
    moved = moved_table(lake, tmp_path)
    shutil.rmtree(plain(lake.load().location()))

    now = open_index(moved, builds.INDEX)

    assert now.coverage == before.coverage
    assert {path.startswith(moved.location()) for path in now.version.needs} == {True}
    builds.assert_answers(now, moved, moved.current_snapshot().snapshot_id, table_events.QUERIES, 5)
    assert {found.kind for found in doctor(moved, []).findings if found.is_problem} == {
        "undeclared"
    }


def moved_table(lake, folder):
    """The table where its files are copied to, as the list of Iceberg's own procedure says."""
    source, target = lake.load().location(), f"file://{folder}/moved"
    [done] = lake.sql(
        f"CALL {{c}}.system.rewrite_table_path(table => '{{n}}', source_prefix => '{source}', "
        f"target_prefix => '{target}', staging_location => 'file://{folder}/staged/')"
    )
    for line in Path(plain(done.file_list_location)).read_text().splitlines():
        there, here = map(plain, line.split(","))
        Path(here).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(there, here)
    catalog = SqlCatalog("moved", uri=f"sqlite:///{folder}/moved.db", warehouse=target)
    catalog.create_namespace("demo")
    return catalog.register_table("demo.moved", f"{target}/metadata/{done.latest_version}")
