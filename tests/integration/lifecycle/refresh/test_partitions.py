"""Partitions in a blob of their own: copied while they are as they were, made anew when not."""

import pytest

from puffin_ann import open_index
from puffin_ann.blobs.changes import tombstone_changes as tombstone_changes_blob
from puffin_ann.blobs.version import coverage as coverage_blob
from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.blobs.version import routing as routing_blob
from puffin_ann.lifecycle.maintain.rename import rename
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.versions.inventory import take_inventory
from puffin_ann.search.version.index_files import open_puffin
from puffin_ann.search.version.versions import newest_version
from tests.integration.search.damage.test_damage import QUERIES
from tests.support.falsified.damage import corrupt, forget_cache, report
from tests.support.lifecycle import builds
from tests.support.lifecycle.refreshes import declared, delete_merge_on_read, newest, refresh
from tests.support.lifecycle.renamed import NEW, named

DECLARED = declared("vamana", refresh={"delta_ratio": 1.0})


@pytest.fixture(params=["apart", "within"])
def built(request, words):
    """A table with an index whose partitions are in their own blob, or in the routing blob."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "within":
            patch.setattr(routing_blob, "split", lambda routing: (routing, b""))
        builds.build(DECLARED, "build")
    words.refresh()
    assert len(stored(words)) == (request.param == "apart")
    return words


def stored(table, index: str = builds.INDEX) -> list[bytes]:
    """The partitions blobs of an index in the file of its newest version, as they are stored."""
    version = newest_version(table, index)
    with open_puffin(table.io, version.path) as reader:
        blobs = reader.find(partitions_blob.TYPE, index=index)
        return [reader.open_stored(blob).read() for blob in blobs]


def test_a_delete_and_an_append_copy_them_and_a_merge_makes_them_anew(built):
    table = built
    before = newest(table).cells(table.io)
    delete_merge_on_read(table, 2)
    first = refresh(table, DECLARED, "delete")
    (blob,) = stored(table)
    with open_puffin(table.io, newest(table).path) as reader:
        small = [blob for blob in reader.metadata.blobs if "shard" not in blob.properties]
        assert first["bytes_written"] + first["bytes_copied"] == reader.length
        assert small[0].type == partitions_blob.TYPE, "beside the other small ones"
        assert small == list(reader.metadata.blobs[-len(small) :])

    table.append(builds.rows(range(60, 66)))
    refresh(table, DECLARED, "append")
    assert stored(table) == [blob]
    cells = newest(table).cells(table.io)
    assert cells.centroids.tolist() == before.centroids.tolist()
    assert cells.rows.tolist() == before.rows.tolist()

    merging = declared("vamana", refresh={"delta_ratio": 0.0})
    assert refresh(table, merging, "as it is")["action"] == "none"
    refresh(table, merging, "merge", maintenance=True)
    (merged,) = stored(table)
    assert merged != blob
    cells = newest(table).cells(table.io)
    assert cells.rows.sum() == before.rows.sum() + 6
    assert (cells.radii >= before.radii).all()


def test_a_copied_blob_is_counted_as_copied(words):
    builds.build(DECLARED, "build")
    words.refresh()
    delete_merge_on_read(words, 2)
    done = refresh(words, DECLARED, "delete")
    version = newest(words)
    with open_puffin(words.io, version.path) as reader:
        new = (tombstone_changes_blob.TYPE, routing_blob.TYPE, coverage_blob.TYPE)
        written = sum(blob.length for blob in reader.metadata.blobs if blob.type in new)
        padding = done["bytes_written"] - 4 - written - reader.footer_size
        assert 0 <= padding < 64 * (len(reader.metadata.blobs) + 1)


def test_another_index_carries_them_along(built):
    before = stored(built)
    builds.build(builds.declaration(name="second", metric="ip"), "other")
    built.refresh()
    assert stored(built) == before
    assert len(stored(built, "second")) == 1
    for name in (builds.INDEX, "second"):
        index = open_index(built, name)
        builds.assert_answers(index, built, built.current_snapshot().snapshot_id, QUERIES, 5)
    assert doctor(built).problems_left == 0


def test_they_go_with_an_index_to_its_new_name(built):
    before = stored(built)
    renamed = named(NEW, algorithm="vamana", parameters=builds.PARAMETERS["vamana"])
    answers = open_index(built, builds.INDEX).search(QUERIES, 5)
    rename(builds.INDEX, renamed, [renamed])
    assert stored(built.refresh(), NEW) == before
    assert open_index(built, NEW).search(QUERIES, 5).equals(answers)


def test_damage_in_them_is_seen_by_searches_and_by_a_quick_doctor(words):
    builds.build(DECLARED, "build")
    words.refresh()
    words.append(builds.rows(range(60, 63)))
    refresh(words, DECLARED, "append")
    newer = newest(words).path.removeprefix("file://")
    forget_cache()
    corrupt(newer, "partitions")

    (sentence,) = report(open_index(words, builds.INDEX).search(QUERIES, 5))["damaged"]
    assert newer in sentence
    assert "every shard is searched instead" in sentence
    assert open_index(words, builds.INDEX).version.path.endswith(newer)
    holds = {file.path: file.holds for file in take_inventory(words).files}
    assert all(len(hold) == 1 for hold in holds.values()), "what a file holds is told without them"
    (found,) = [
        finding for finding in doctor(words, quick=True).findings if finding.kind == "damaged"
    ]
    assert found.file.endswith(newer)
    assert doctor(words, fix=True).problems_left == 0
    assert report(open_index(words.refresh(), builds.INDEX).search(QUERIES, 5))["damaged"] == []
