"""Cells that cannot be read are made again of the rows of shards, by a refresh or the doctor."""

import os

import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.ann.core.metrics import METRICS
from puffin_ann.blobs.shards import rows as rows_blob
from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.errors import DamagedIndexError, PuffinAnnError
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.drop import drop
from puffin_ann.lifecycle.maintain.gather import gather
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.publish import layers
from puffin_ann.lifecycle.refresh import new_version
from puffin_ann.lifecycle.report.plan import preview
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runs.maintain import maintain
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.search.version import index_version
from puffin_ann.search.version.versions import all_index_names, newest_version
from tests.support.falsified.damage import corrupt, damaged, forget_cache, report
from tests.support.indexes.tagged_versions import later
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds, refreshes
from tests.support.params import long_but_first

QUERIES = refreshes.QUERIES
SHARDED = {"publish": "tag", "shards": 4, "partitions_per_shard": 2}


def declared(algorithm="exact", **changes):
    refresh = {"delta_ratio": 1.0, "min_rows": 0}
    return refreshes.declared(algorithm, **{"refresh": refresh, **SHARDED, **changes})


DECLARED = declared()


@pytest.fixture(params=["named", "own"])
def form(request, monkeypatch):
    """Every version names the cells in the file of the build, or each is in one file."""
    if request.param == "named":
        request.getfixturevalue("layered")
        monkeypatch.setattr(layers, "SMALL_PARTITIONS", 0)
        monkeypatch.setattr(index_version, "SMALL_CELLS", 0)
    return request.param


@pytest.fixture
def named(request, monkeypatch):
    """Every version names the cells in the file of the build."""
    request.getfixturevalue("layered")
    monkeypatch.setattr(layers, "SMALL_PARTITIONS", 0)


def built(table, declaration=DECLARED):
    """Build, and add a delta; returns the version of it."""
    builds.build(declaration, "build")
    table.refresh().append(builds.rows(range(60, 70)))
    refreshes.refresh(table, declaration, "delta")
    return newest(table)


def newest(table):
    return newest_version(table.refresh(), builds.INDEX)


def file_of_cells(version):
    """The file that has the cells of a version, on the disk."""
    path = version.path
    for blob in version.directory.blobs if version.directory else ():
        if blob.type == partitions_blob.TYPE:
            path = f"{path.rpartition('/')[0]}/{version.directory.files[blob.file].name}"
    return path.removeprefix("file://")


def harm(table):
    """Damage the cells of the newest version."""
    corrupt(file_of_cells(newest(table)), "partitions")
    forget_cache()


def assert_mended(table, declaration=DECLARED):
    forget_cache()
    index = open_index(table.refresh(), builds.INDEX)
    cells = index.version.cells(table.io)
    assert_cover(table, index, cells)
    refreshes.assert_right(table, declaration)
    assert report(index.search(QUERIES, 3))["damaged"] == []
    assert report(index.within(QUERIES, 0.5))["damaged"] == []
    assert doctor(table, [declaration], fix=True).problems_left == 0
    assert newest(table).run_id == index.version.run_id, "there was nothing left to repair of it"


def assert_cover(table, index, cells):
    """Radii hold every row of a shard, and each cell lies in the shard that has its rows."""
    routing = index.version.routing
    for shard in routing.shards:
        if shard.kind != "graph" or not shard.rows:
            continue
        engine = index._shards._opened.open(shard).loaded.engine
        vectors = engine.vectors(np.arange(engine.rows))
        space = METRICS[routing.metric].to_search_space(vectors, routing.norm_bound)
        own = cells.shards == shard.shard_id
        apart = np.linalg.norm(
            space[:, None].astype(np.float64) - cells.centroids[own].astype(np.float64), axis=2
        )
        assert (apart <= cells.radii[own].astype(np.float64) + 1e-6).any(axis=1).all()
    assert int(cells.rows.sum()) == sum(s.rows for s in routing.shards if s.kind == "graph")


@pytest.mark.parametrize("metric", long_but_first(["l2", "cosine", "ip"]))
def test_the_doctor_makes_them_again(words, form, metric):
    declaration = declared(metric=metric)
    before = built(words, declaration)
    whole = before.cells(words.io)
    harm(words)
    for quick in (True, False):
        found = damaged(doctor(words, [declaration], quick=quick))
        (problem,) = [finding for finding in found if finding.is_problem]
        assert problem.file == before.path
        assert file_of_cells(before) in problem.what or "partitions" in problem.what
        assert "--fix' makes the cells again of the rows of all shards" in problem.remedy
    done = doctor(words, [declaration], fix=True)
    assert done.problems_left == 0, done
    assert any("make the cells again" in action for action in done.actions)
    assert_mended(words, declaration)
    after = newest(words)
    assert after.run_id != before.run_id
    assert after.coverage.columns.indexed_rows == before.coverage.columns.indexed_rows
    assert_alike(after.cells(words.io), whole)


def assert_alike(made: Partitions, whole: Partitions):
    """What was made again has the cells where they were: about the same rows are near them."""
    assert made.count == whole.count
    held = made.rows > 0
    assert (made.shards == whole.shards)[held].all()
    assert (made.rows == whole.rows)[held].mean() > 0.9
    np.testing.assert_allclose(made.centroids[held], whole.centroids[held], atol=1.0)


@pytest.mark.parametrize("algorithm", ["vamana", "hnsw", "ivf_pq"])
def test_a_refresh_that_adds_rows_makes_them_again(words, form, algorithm):
    declaration = declared(algorithm)
    built(words, declaration)
    harm(words)
    words.append(builds.rows(range(70, 76)))
    done = refreshes.refresh(words, declaration, "append")
    assert done["action"] == "refresh"
    assert "make the cells again of the rows of all shards" in done["reason"]
    assert_mended(words, declaration)


def test_a_merge_makes_them_again_and_raises_their_figures(words, form):
    built(words)
    harm(words)
    merging = declared(refresh={"delta_ratio": 0.0, "min_rows": 0})
    done = maintain([merging], run_id="window", runner=InProcess())["indexes"][builds.INDEX]
    assert "make the cells again" in done["reason"]
    words.refresh()
    assert all(shard.kind == "graph" for shard in newest(words).routing.shards)
    assert_mended(words, merging)


def test_a_forced_refresh_of_an_unchanged_table_makes_them_again(words, form):
    built(words)
    harm(words)
    assert refresh_in_process(DECLARED, run_id="plain")["action"] == "none"
    done = refresh_in_process(DECLARED, run_id="forced", force=True)
    assert "nothing changed" in done["reason"]
    assert "make the cells again" in done["reason"]
    assert (done["rows_added"], done["rows_gone"]) == (0, 0)
    assert_mended(words)


def test_rows_that_were_inserted_and_deleted_are_within_their_radii(words, named):
    """Those stand behind all cells of a shard, in no order."""
    merging = declared("vamana", refresh={"delta_ratio": 0.0, "min_rows": 0})
    builds.build(merging, "build")
    words.refresh().append(builds.rows(range(60, 90), seed=1))
    refreshes.refresh(words, merging, "merge")
    file = next(iter(words.scan().plan_files())).file
    delete_positions(words, {file.file_path: [0, 3, 5]})
    words.refresh()
    refreshes.refresh(words, merging, "delete")
    harm(words)
    assert doctor(words, [merging], fix=True).problems_left == 0
    assert_mended(words, merging)


def test_deletes_alone_need_no_cells(words, named):
    built(words)
    harm(words)
    file = next(iter(words.scan().plan_files())).file
    delete_positions(words, {file.file_path: [1]})
    words.refresh()
    done = refreshes.refresh(words, DECLARED, "delete")
    assert "cells" not in done["reason"]
    assert len(report(open_index(words, builds.INDEX).search(QUERIES, 3))["damaged"]) == 1
    assert doctor(words, [DECLARED], fix=True).problems_left == 0
    assert_mended(words)


def test_where_the_file_of_the_cells_is_gone_any_refresh_makes_them_again(
    words, named, monkeypatch
):
    """Nothing else of the version is in it: they were made again before."""
    monkeypatch.setattr(new_version, "coverage_changes", lambda *_: None)  # each has its own
    built(words)
    harm(words)
    assert doctor(words, [DECLARED], fix=True).problems_left == 0
    words.refresh().append(builds.rows(range(70, 76)))
    refreshes.refresh(words, DECLARED, "append")
    os.remove(file_of_cells(newest(words)))
    forget_cache()
    index = open_index(words, builds.INDEX)
    builds.assert_answers_are(index, builds.live(words), QUERIES, 3)
    builds.assert_within(index, builds.live(words), QUERIES)
    *_, said = report(index.search(QUERIES, 3))["damaged"]
    assert "is gone from the store; every shard is searched instead" in said
    found, *_ = [
        finding for finding in damaged(doctor(words, [DECLARED], quick=True)) if finding.is_problem
    ]
    assert found.file == newest(words).path
    assert "--fix' makes the cells again" in found.remedy
    decision = preview(words, DECLARED).decision
    assert (decision.action, decision.remakes_cells) == ("refresh", True)
    assert "is gone from the store" in decision.reason
    done = refresh_in_process(DECLARED, run_id="plain")
    assert "make the cells again of the rows of all shards" in done["reason"]
    assert_mended(words)


def test_a_file_that_has_all_but_a_delta_is_gone_and_the_index_is_built(words, named):
    version = built(words)
    os.remove(file_of_cells(version))
    assert preview(words, DECLARED).decision.action == "build"
    assert refresh_in_process(DECLARED, run_id="again")["action"] == "build"
    assert_mended(words)


def test_damage_of_a_shard_besides_has_the_index_built(words, named):
    version = built(words)
    harm(words)
    corrupt(file_of_cells(version), "rows", shard=1)
    done = doctor(words, [DECLARED], fix=True)
    assert done.problems_left
    assert any("--force" in finding.remedy for finding in damaged(done))
    words.append(builds.rows(range(70, 73)))
    done = refresh_in_process(DECLARED, run_id="again", force=True)
    assert done["action"] == "build"
    assert_mended(words)


def test_shards_that_do_not_say_whose_rows_they_have_lead_to_a_build(words, named, monkeypatch):
    """Those of files of format 1.1 and earlier."""
    built(words)
    harm(words)
    monkeypatch.setattr(rows_blob, "read_cells", lambda reader, rows: None)
    done = doctor(words, [DECLARED], fix=True)
    assert any("does not say of which cells its rows are" in action for action in done.actions)
    assert done.problems_left
    words.append(builds.rows(range(70, 73)))
    assert refresh_in_process(DECLARED, run_id="again", force=True)["action"] == "build"
    monkeypatch.undo()
    assert_mended(words)


def test_whoever_needs_no_cells_does_his_work(words, form):
    before = built(words)
    harm(words)
    assert guard(words, [DECLARED]).actions == ()
    assert clean(words, [DECLARED], at_ms=later()).failed == ()
    assert newest(words).run_id == before.run_id
    assert os.path.exists(file_of_cells(before))
    with pytest.raises(DamagedIndexError, match="--fix' makes the cells again"):
        gather(words, builds.INDEX)
    earlier = words.snapshots()[0].snapshot_id
    index = open_index(words, builds.INDEX, earlier)
    builds.assert_answers(index, words, earlier, QUERIES, 3)
    drop(words, builds.INDEX)
    assert all_index_names(words.refresh()) == []


def test_with_what_was_gathered_before_nothing_is_shared(words, named):
    built(words)
    gather(words, builds.INDEX)
    after = newest(words)
    assert after.directory is None
    harm(words)
    assert doctor(words, [DECLARED], fix=True).problems_left == 0
    assert_mended(words)


def test_no_refresh_publishes_what_it_could_not_make(words, named, monkeypatch):
    before = built(words)
    harm(words)
    words.append(builds.rows(range(70, 73)))

    def no_room(*_):
        raise PuffinAnnError("no room on the disk")

    with monkeypatch.context() as patch:
        patch.setattr("puffin_ann.lifecycle.runs.refresh.remake_cells", no_room)
        with pytest.raises(PuffinAnnError, match="no room"):
            refresh_in_process(DECLARED, run_id="append", force=True)
    assert newest(words).run_id == before.run_id
