"""What a shard lost is told beside the others' until a blob of its own would have cost as much."""

from dataclasses import replace

import numpy as np
import pytest
from pyroaring import BitMap

from puffin_ann.blobs.changes.tombstone_changes import AddedTombstones
from puffin_ann.blobs.version import tombstones
from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.lifecycle.refresh.apply_changes.added_tombstones import (
    added_tombstones,
    load_tombstones,
)
from puffin_ann.search.version.index_version import IndexVersion
from tests.support.indexes.blob_samples import sample_coverage, sample_routing

ROWS = 100_000


def version(added=(), written=0, shards=1):
    entries = tuple(ShardEntry(n, "", ROWS, 1, 0, "graph") for n in range(shards))
    routing = replace(sample_routing(), shards=entries)
    known = {0: AddedTombstones(BitMap(added), written)} if added else {}
    return IndexVersion("i", "p", None, 0, 1, routing, sample_coverage(), added_tombstones=known)


def staged(before, deleted, **given):
    found = version(**given)
    shard = found.routing.shards[0]
    columns = (np.array(sorted(rows), np.int64) for rows in (before, deleted))
    made = added_tombstones(found, shard, *columns)
    return made if made is None else (load_tombstones(made, shard), made.written)


def test_rows_that_went_since_the_blob_are_told():
    added, written = staged({1, 2, 3, 9}, {1, 2, 3, 9, 50}, added=[9])

    assert added.ordinals == BitMap([9, 50])
    assert written == added.written > 0


def test_rows_that_came_back_are_told_unless_the_blob_names_them():
    assert staged({1, 2, 9}, {1, 2}, added=[9])[0] is None
    assert staged({1, 2, 9}, {2, 9}, added=[9]) is None


@pytest.mark.parametrize("rows", [10, 1000, 40_000])
def test_no_more_is_written_of_changes_than_twice_what_blobs_would_have_taken(rows):
    """Rows go one at a time, and of a shard that lost many before."""
    rng = np.random.default_rng(1)
    order = rng.permutation(ROWS)
    blob, added, written, total, blobs = set(order[:rows].tolist()), [], 0, 0, 0
    for row in order[rows : rows + 300].tolist():
        before = blob | set(added)
        found = staged(before, before | {row}, added=added, written=written)
        if found is None:
            blob, added, written = before | {row}, [], 0
            total += len(tombstones.encode(BitMap(blob)))
            blobs += 1
        else:
            told, now = found
            total += now - written
            added, written = sorted(told.ordinals), now

    whole = len(tombstones.encode(BitMap(blob)))
    assert total < 3 * (blobs + 1) * (whole + 512)
    assert total < 300 * whole / 4, "a blob a time takes far more"


def test_a_shard_of_thousands_has_room_for_little():
    many = range(0, 6000, 7)
    assert staged(set(), set(many)) is not None
    assert staged(set(), set(many), shards=2000) is None
    assert staged(set(), {5, 9}, shards=100_000) is not None
