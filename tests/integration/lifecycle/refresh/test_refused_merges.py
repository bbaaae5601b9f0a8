"""A refresh publishes what changed, though shards would lose recall by what is due for them."""

import logging

import numpy as np
import pyarrow as pa
import pytest

from puffin_ann import open_index
from puffin_ann.lifecycle.documents.index_properties import IndexProperties
from puffin_ann.lifecycle.documents.refresh import applied_name
from puffin_ann.lifecycle.documents.run_ref import RunRef
from puffin_ann.lifecycle.evaluate.effort import Efforts
from puffin_ann.lifecycle.evaluate.measure import Measure
from puffin_ann.lifecycle.policy.kept_recall import ShardRecall
from puffin_ann.lifecycle.refresh import stages
from puffin_ann.lifecycle.refresh.apply_changes import judge_recall
from puffin_ann.lifecycle.refresh.apply_changes.judge_recall import Judgement, RecallJudge
from puffin_ann.lifecycle.refresh.apply_changes.rewrite_shard import ShardRewriter
from puffin_ann.lifecycle.report.history import history
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runs import publish
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runs.refresh import plan_refresh
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.lifecycle.runtime.workspace import Workspace
from tests.support.lifecycle import builds
from tests.support.lifecycle.refreshes import assert_right, declared, newest, refresh, shards

LOST = Judgement(0.5, ShardRecall(recall=0.94, low=0.93, high=0.95), keeps=False, loses=True)
BOTH = {0, 1}


class Refusing:
    """Has shards of some numbers lose recall whatever is done to them, and counts what is judged.

    Attributes:
        numbers: of these shards.
        judged: numbers of shards that rows were put into.
    """

    def __init__(self, monkeypatch):
        self.numbers, self.judged, self.judge = set(BOTH), [], RecallJudge.judge
        monkeypatch.setattr(RecallJudge, "judge", lambda *given: self.judge_or_refuse(*given))

    def judge_or_refuse(self, judge, changed, number, *rest):
        self.judged.append(number)
        return LOST if number in self.numbers else self.judge(judge, changed, number, *rest)


@pytest.fixture
def refusing(monkeypatch):
    return Refusing(monkeypatch)


def live_by_kind(table):
    rows = dict.fromkeys(("graph", "delta"), 0)
    for shard in shards(table).values():
        rows[shard.kind] += shard.rows - shard.tombstones
    return rows


def undone(table):
    return IndexProperties(newest(table).routing.properties).undone


def files_of_graphs(table):
    version = newest(table)
    return {
        number: (version.file_of(shard), shard.rows)
        for number, shard in shards(table).items()
        if shard.kind == "graph"
    }


def test_what_was_to_be_merged_stays_in_a_delta_and_what_was_deleted_is_masked(
    build, refusing, caplog
):
    table = build(declared("vamana"))
    table.append(builds.rows(range(60, 70)))
    table.delete("id in (3, 4, 5)")
    done = refresh(table, declared("vamana"), "refused")  # and all is found, and nothing else
    assert (done["action"], done["rows_added"], done["rows_gone"]) == ("refresh", 10, 3)
    assert live_by_kind(table) == {"graph": 57, "delta": 10}
    assert {rows for _, rows in files_of_graphs(table).values()} == {
        shard.rows for shard in shards(table).values() if shard.kind == "graph"
    }
    assert "finds 0.5000" in done["undone"]
    assert f"'puffin-ann build {builds.INDEX} --force'" in done["undone"]
    warned = [entry.message for entry in caplog.records if entry.levelno == logging.WARNING]
    assert any("it stays as it is" in message for message in warned)
    assert any(message.startswith("publish: left undone") for message in warned)
    assert status(table, builds.INDEX)[0].undone == done["undone"]
    record = history(table, builds.INDEX).entries[0].record
    assert (record.action, "left undone" in record.reason) == ("refresh", True)


def test_a_merge_is_tried_again_once_there_is_twice_as_much_and_forgotten_once_it_is_done(
    build, refusing
):
    table = build(declared("vamana"))
    table.append(builds.rows(range(60, 70)))
    refresh(table, declared("vamana"), "refused")
    tried = len(refusing.judged)
    for number, upto in enumerate((75, 79)):
        table.append(builds.rows(range(70 + 5 * number, upto)))
        done = refresh(table, declared("vamana"), f"waits-{number}", maintenance=number == 1)
        assert "merged from 20 on" in done["reason"]
        assert done["undone"] == ""  # by this run
        assert "finds 0.5000" in status(table, builds.INDEX)[0].undone
    assert len(refusing.judged) == tried
    assert live_by_kind(table) == {"graph": 60, "delta": 19}
    table.append(builds.rows([79]))
    refresh(table, declared("vamana"), "again")
    assert len(refusing.judged) > tried
    assert (undone(table).run_id, undone(table).merges_from) == ("again", 40)
    refusing.numbers.clear()
    table.append(builds.rows(range(80, 100)))
    done = refresh(table, declared("vamana"), "merges")
    assert live_by_kind(table) == {"graph": 100, "delta": 0}
    assert (undone(table).is_any, done["undone"]) == (False, "")
    assert status(table, builds.INDEX)[0].undone == ""
    assert history(table, builds.INDEX).entries[0].record.action == "merge"


def test_a_build_does_what_was_left_undone(build, refusing):
    table = build(declared("vamana"))
    table.append(builds.rows(range(60, 70)))
    assert refresh(table, declared("vamana"), "refused")["undone"]
    builds.build(declared("vamana"), "built", overrides={"force": True})
    assert live_by_kind(table.refresh()) == {"graph": 70, "delta": 0}
    assert status(table, builds.INDEX)[0].undone == ""


def test_shards_that_can_take_their_rows_do_and_cells_count_those_alone(build, refusing):
    table = build(declared("vamana"))
    refusing.numbers = {1}
    before = files_of_graphs(table)
    table.append(builds.rows(range(60, 80)))
    table.overwrite(table.scan().to_arrow())  # so that every row is relocated as well
    refresh(table, declared("vamana"), "partly")
    after, version = files_of_graphs(table), newest(table)
    assert after[0][1] > before[0][1]
    assert after[1][1] == before[1][1]
    assert live_by_kind(table)["delta"] == 80 - after[0][1] - after[1][1]
    cells = version.cells(table.io)
    for number, (_, rows) in after.items():
        assert cells.rows[cells.shards == number].sum() == rows
    assert undone(table).refused == (1,)
    assert history(table, builds.INDEX).entries[0].record.action == "merge"


def test_each_group_of_shards_keeps_its_own_rows_and_a_retry_makes_the_same(build, refusing):
    several = declared("vamana", build={"max_submits": 2})
    table = build(several)
    table.append(builds.rows(range(60, 80)))
    plan = plan_refresh(several, run_id="groups", force=True)
    assert len(plan.groups) == 2
    run, runner = RunRef.planned(plan), InProcess()
    stages.read_changes(runner, run)
    first = [stages.apply_group(runner, run, group) for group in plan.groups]
    staging = Workspace.open(run).staging
    table.io.delete(staging.uri(applied_name(plan.groups[1])))  # as if it had died before
    again = stages.apply_group(runner, run, plan.groups[1])
    for made, before in zip(again.shards, first[1].shards, strict=True):
        assert (made.shard_id, made.rows, made.blobs) == (
            before.shard_id,
            before.rows,
            before.blobs,
        )
    publish.publish(run)
    table.refresh()
    assert [number for number, shard in shards(table).items() if shard.kind == "delta"] == [2, 3]
    assert live_by_kind(table) == {"graph": 60, "delta": 20}
    assert_right(table, several)


def test_a_shard_of_many_deleted_rows_that_cannot_be_built_again_stays_masked(build, refusing):
    worn = declared("vamana", rebuild={"tombstone_ratio": 0.2})
    table = build(worn)
    table.delete("id < 30")
    done = refresh(table, worn, "refused", maintenance=True)
    assert (done["action"], done["rows_gone"]) == ("refresh", 30)
    assert "finds 0.5000" in done["undone"]
    assert live_by_kind(table) == {"graph": 30, "delta": 0}
    tried = len(refusing.judged)
    assert refresh(table, worn, "unchanged", maintenance=True)["action"] == "none"
    table.delete("id = 30")
    assert refresh(table, worn, "more", maintenance=True)["undone"] == ""
    assert len(refusing.judged) == tried
    refusing.numbers.clear()
    table.delete("id < 55")
    refresh(table, worn, "most", maintenance=True)
    assert not undone(table).is_any
    assert {shard.tombstones for shard in shards(table).values()} == {0}


@pytest.mark.parametrize("vectors", ["float32", "none"])
def test_what_is_published_is_measured_as_what_replaces_it_and_stays_the_bar(
    build, monkeypatch, vectors
):
    measured = []

    def measure(made_by, source, deleted, folder, table, **options):
        found = recall_of_blob(made_by, source, deleted, folder, table, **options)
        measured.append(folder.name)
        return Measure(0.3, 0.2, 0.4, 9) if folder.name == "changed" else found

    recall_of_blob = judge_recall.recall_of_blob
    monkeypatch.setattr(judge_recall, "recall_of_blob", measure)
    lists = declared("ivf_pq", vectors=vectors, shards=1)
    table = build(lists)
    table.append(builds.rows(range(60, 70)))
    refresh(table, lists, "refused")
    assert sorted(measured) == ["changed", "changed", "published"]
    noted = IndexProperties(newest(table).routing.properties).shard_recalls
    assert (noted.k, noted.shards[0].recall >= 0.5) == (5, True)
    assert f"the published one {noted.shards[0].recall:.4f}" in undone(table).reason
    measured.clear()
    table.append(builds.rows(range(70, 90)))
    refresh(table, lists, "again")
    assert measured == ["changed", "changed"]
    assert IndexProperties(newest(table).routing.properties).shard_recalls == noted


DIMENSION = 64
FEW = {"R": 4, "L": 4}


def uniform(first, rows):
    """Rows by whose inner products shards alone find less than the index they are of."""
    vectors = np.random.default_rng([7, first]).random((rows, DIMENSION), np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
    ids = pa.array(range(first, first + rows), pa.int64())
    return pa.table({"id": ids, "embedding": column.cast(pa.list_(pa.float32()))})


@pytest.fixture
def by_products(catalog, monkeypatch):
    """A table and an index of two shards that passed the gate, one of which is under its target.

    Of widths that reach it the narrowest is chosen.
    """
    monkeypatch.setattr(Efforts, "of", lambda self, width, probe: float(width))
    table = catalog.create_table("demo.words", schema=uniform(0, 0).schema)
    table.append(uniform(0, 6000))
    declaration = builds.declaration(
        algorithm="vamana",
        parameters={"R": 32, "L": 64},
        metric="ip",
        partitions_per_shard=4,
        recall_target=0.9,
        gate={"queries": 200, "k": 10},
    )
    builds.build(declaration, "build")
    table.refresh().append(uniform(6000, 600))
    return table, declaration


def test_shards_that_were_published_are_no_reason_to_refuse_those_that_are_as_good(by_products):
    table, declaration = by_products
    done = refresh_in_process(declaration, run_id="merge", force=True)
    version = open_index(table.refresh(), builds.INDEX).version
    assert (done["action"], done["undone"]) == ("refresh", "")
    assert {shard.kind for shard in version.routing.shards} == {"graph"}
    noted = IndexProperties(version.routing.properties).shard_recalls.shards
    assert min(found.recall for found in noted.values()) < declaration.recall_target


def test_shards_that_would_truly_find_less_are_refused_by_what_is_measured(
    by_products, monkeypatch
):
    spent = ShardRewriter._building

    def too_little(self, *given):
        options = spent(self, *given)
        return {**options, "parameters": options["parameters"].model_copy(update=FEW)}

    monkeypatch.setattr(ShardRewriter, "_building", too_little)
    table, declaration = by_products
    done = refresh_in_process(declaration, run_id="merge", force=True)
    index = open_index(table.refresh(), builds.INDEX)
    kinds = {shard.shard_id: (shard.kind, shard.rows) for shard in index.version.routing.shards}
    assert "built again of" in done["undone"]
    assert undone(table).refused
    assert kinds[2][0] == "delta"
    assert sum(rows for _, rows in kinds.values()) == 6600
    assert (index.view.rows_to_scan, index.view.rows_masked) == (0, 0)
