"""Tombstone changes that cannot be read are made again, of where rows are, and nothing else is."""

from types import SimpleNamespace

import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.blobs.changes import tombstone_changes as tombstone_changes_blob
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.search.shards.opening import lost_tombstones
from puffin_ann.search.version.row_locators import Locators
from puffin_ann.search.version.versions import newest_version
from tests.support.falsified.damage import corrupt, damaged, forget_cache
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds, refreshes

SHARDED = {"publish": "tag", "shards": 3, "refresh": {"delta_ratio": 0.9, "min_rows": 0}}


def newest(table):
    return newest_version(table.refresh(), builds.INDEX)


def paths_of(table):
    return sorted(task.file.file_path for task in table.refresh().scan().plan_files())


def published(table, algorithm):
    """Publish a version whose tombstones are told beside those of other shards, and damage them."""
    declaration = refreshes.declared(algorithm, **SHARDED)
    builds.build(declaration, "build")
    paths = paths_of(table)
    delete_positions(table, {paths[0]: [2, 5, 17], paths[1]: [0, 9]})
    table.refresh().append(builds.rows(range(60, 70)))
    refreshes.refresh(table, declaration, "refresh")
    version = newest(table)
    assert version.added_tombstones
    corrupt(file_of_tombstones(version), "tombstone-changes")
    forget_cache()
    return declaration, version


def file_of_tombstones(version):
    path = version.path
    for blob in version.directory.blobs if version.directory else ():
        if blob.type == tombstone_changes_blob.TYPE:
            path = f"{path.rpartition('/')[0]}/{version.directory.files[blob.file].name}"
    return path.removeprefix("file://")


@pytest.mark.parametrize("algorithm", ["exact", "vamana"])
@pytest.mark.parametrize("form", ["layered", "whole"])
def test_the_doctor_makes_them_again(words, request, algorithm, form):
    if form == "layered":
        request.getfixturevalue("layered")
    declaration, before = published(words, algorithm)
    for quick in (True, False):
        (problem,) = damaged(doctor(words, [declaration], quick=quick))
        assert problem.file == before.path
        assert "makes the tombstone changes again" in problem.remedy

    done = doctor(words, [declaration], fix=True)

    assert done.problems_left == 0, done
    assert any("tombstone changes made again" in action for action in done.actions)
    after = newest(words)
    assert after.run_id == before.run_id, "nothing was refreshed"
    assert after.coverage.columns.indexed_rows == before.coverage.columns.indexed_rows
    found, told = after.added_tombstones, before.added_tombstones
    assert {shard: added.ordinals for shard, added in found.items()} == {
        shard: added.ordinals for shard, added in told.items()
    }
    assert {*before.needs} <= {*after.needs}, "shards stay where they are"
    forget_cache()
    refreshes.assert_right(words, declaration)
    assert not any(finding.is_problem for finding in damaged(doctor(words, [declaration])))
    delete_positions(words.refresh(), {paths_of(words)[0]: [20]})
    refreshes.refresh(words, declaration, "next")


def test_they_are_made_again_where_a_later_version_names_them(words, layered):
    declaration, _ = published(words, "exact")
    assert newest(words).run_id == "build", "the version cannot be read"
    doctor(words, [declaration], fix=True)
    words.refresh().append(builds.rows(range(70, 75)))
    refreshes.refresh(words, declaration, "appended")
    version = newest(words)
    assert file_of_tombstones(version) != version.path.removeprefix("file://")
    corrupt(file_of_tombstones(version), "tombstone-changes")
    forget_cache()

    done = doctor(words, [declaration], fix=True)

    assert done.problems_left == 0, done
    assert newest(words).run_id == "appended"
    forget_cache()
    refreshes.assert_right(words, declaration)


def test_an_older_version_is_published_where_it_cannot_be_told_which_rows_they_are(
    words, layered, monkeypatch
):
    declaration, _ = published(words, "exact")
    of = Locators.of
    fewer = SimpleNamespace(of=lambda rows: of(rows.take(np.arange(0))))
    monkeypatch.setattr(lost_tombstones, "Locators", fewer)

    done = doctor(words, [declaration], fix=True)

    assert any("which these are cannot be told" in action for action in done.actions), done
    index = open_index(words.refresh(), builds.INDEX)
    assert index.version.run_id == "build"
    builds.assert_answers_are(index, builds.live(words), refreshes.QUERIES, 5)


def test_a_version_without_tombstones_has_none_to_be_made(words):
    builds.build(refreshes.declared("exact", **SHARDED), "build")

    assert lost_tombstones.find_added_tombstones(words.io, newest(words)) == {}
