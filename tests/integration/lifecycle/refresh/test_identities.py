"""Rows that move leave identities where these are; those in rows blobs move to their own blob."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from puffin_ann.blobs.shards import delta, graph, identities, rows
from puffin_ann.lifecycle.build import shard as build_shard
from puffin_ann.lifecycle.refresh.apply_changes import make_delta, remap, rewrite_shard
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.search.version.index_files import StoredBlob
from tests.support.falsified.falsified_index import Liar
from tests.support.falsified.index_file import IndexFile
from tests.support.indexes import rows_with_identities
from tests.support.lifecycle import builds
from tests.support.lifecycle.refreshes import (
    assert_right,
    blob_digests,
    compact,
    declared,
    delete_merge_on_read,
    newest,
    refresh,
    roll_back,
)


@contextmanager
def as_earlier_releases(monkeypatch):
    """Have rows blobs written with the identities of their rows."""

    def write_rows(located, folder):
        path = folder / "rows.blob"
        with path.open("wb") as out:
            rows_with_identities.write(located, out)
        return {rows.TYPE: path}

    with monkeypatch.context() as patch:
        for module in (build_shard, make_delta, remap, rewrite_shard):
            patch.setattr(module, "write_rows", write_rows)
        yield


def test_rows_that_move_leave_their_identities_where_they_are(build):
    declaration = declared("vamana")
    table = build(declaration)
    before = blob_digests(table)
    for number in range(2):
        compact(table)
        done = refresh(table, declaration, f"compaction {number}")
        assert (done["rows_added"], done["rows_gone"]) == (0, 0)
        now = blob_digests(table)
        assert now[identities.TYPE] == before[identities.TYPE]
        assert now[graph.TYPE] == before[graph.TYPE]
        assert not now[rows.TYPE] & before[rows.TYPE]
    assert len(before[identities.TYPE]) == 2


@pytest.mark.parametrize("algorithm", ["vamana", "exact"])
def test_identities_of_an_earlier_release_move_with_the_first_rows_that_do(
    words, monkeypatch, algorithm
):
    declaration = declared(algorithm, refresh={"delta_ratio": 1.0})
    with as_earlier_releases(monkeypatch):
        builds.build(declaration, "build")
        words.refresh().append(builds.rows(range(60, 66)))
        refresh(words, declaration, "append")
    assert identities.TYPE not in blob_digests(words)
    delete_merge_on_read(words, 2)
    refresh(words, declaration, "masks")
    assert identities.TYPE not in blob_digests(words)

    compact(words)
    done = refresh(words, declaration, "compaction")

    assert (done["rows_added"], done["rows_gone"]) == (0, 0)
    moved = blob_digests(words)[identities.TYPE]
    assert len(moved) == len(blob_digests(words)[rows.TYPE]) == 3
    before = words.current_snapshot().snapshot_id
    words.delete("id >= 20 and id < 30")
    refresh(words, declaration, "copy-on-write")
    assert blob_digests(words)[identities.TYPE] == moved
    roll_back(words, before)
    refresh(words, declaration, "rollback")
    assert blob_digests(words)[identities.TYPE] == moved


@pytest.mark.parametrize("algorithm", ["vamana", "ivf_pq"])
def test_shards_of_an_earlier_release_take_rows_in(words, monkeypatch, algorithm):
    eager = declared(algorithm, refresh={"delta_ratio": 0.0})
    with as_earlier_releases(monkeypatch):
        builds.build(eager, "build")
        words.refresh().append(builds.rows(range(60, 66)))
        refresh(words, eager, "append")
    words.append(builds.rows(range(70, 90)))
    refresh(words, eager, "merge", maintenance=True)
    assert identities.TYPE in blob_digests(words)
    compact(words)
    done = refresh(words, eager, "compaction", maintenance=True)
    assert (done["rows_added"], done["rows_gone"]) == (0, 0)
    assert_right(words, eager)


def publish_without_identities(table, of_deltas: bool) -> None:
    """Register the newest version without the identities of its deltas, or of its graphs."""
    path = Path(newest(table).path.removeprefix("file://"))
    file = IndexFile.read(path)
    deltas = {blob.metadata.properties["shard"] for blob in file.all(delta)}
    for blob in file.all(identities):
        if (blob.metadata.properties["shard"] in deltas) == of_deltas:
            file.blobs.remove(blob)
    file.write(path)
    Liar(table.refresh(), "exact", path, b"", builds.live(table)).register()
    table.refresh()


def with_a_delta(table, **changes):
    declaration = declared("vamana", refresh={"delta_ratio": 1.0}, publish="statistics", **changes)
    builds.build(declaration, "build")
    table.refresh().append(builds.rows(range(60, 66)))
    refresh(table, declaration, "append")
    return declaration


def test_a_delta_without_identities_is_damaged_and_made_anew(words):
    declaration = with_a_delta(words)
    publish_without_identities(words, of_deltas=True)
    assert_right(words, declaration)
    told = [finding for finding in doctor(words).findings if finding.is_problem]
    assert any("no blob has the identities of its rows" in str(finding) for finding in told)

    words.append(builds.rows(range(70, 76)))
    refresh(words, declaration, "append again")
    found = doctor(words).findings
    assert not [one for one in found if one.is_problem and one.file == newest(words).path]


def test_rows_of_a_graph_without_identities_are_removed_and_added_when_they_move(words):
    declaration = with_a_delta(words)
    publish_without_identities(words, of_deltas=False)
    compact(words)
    done = refresh(words, declaration, "compaction")
    assert done["rows_added"] == done["rows_gone"] == 60


def test_identities_are_read_of_shards_that_rows_went_from(words, monkeypatch):
    declaration = with_a_delta(words)
    reads = []
    for name in ("read", "open"):
        whole = getattr(StoredBlob, name)
        monkeypatch.setattr(
            StoredBlob,
            name,
            lambda blob, whole=whole: (
                reads.append((blob.metadata.type, blob.metadata.properties["shard"]))
                if blob.metadata.type == identities.TYPE
                else None,
                whole(blob),
            )[1],
        )
    words.delete("id = 62")
    refresh(words, declaration, "one row went")
    assert len(set(reads)) == 1
