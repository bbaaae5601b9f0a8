"""Refreshes of small tables, held to brute force after each, and changes that call for them."""

import numpy as np

from puffin_ann import open_index
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(5).normal(size=(2, builds.DIMENSION)).astype(np.float32)


def declared(algorithm="exact", **changes):
    return builds.declaration(
        algorithm=algorithm,
        parameters=builds.PARAMETERS.get(algorithm, {}),
        recall_target=0.5,
        **changes,
    )


def refresh(table, declaration, run="refresh", **options):
    """Refresh, whatever is expected to be cheaper, and hold the index to brute force."""
    done = refresh_in_process(declaration, run_id=run, force=True, **options)
    table.refresh()
    if done["snapshot_id"] is not None:
        assert newest(table).coverage.base_snapshot_id in {
            snapshot.snapshot_id for snapshot in table.snapshots()
        }
    assert_right(table, declaration)
    return done


def maintained(table, declaration, due):
    """Run the maintenance that something is due for, which refreshes tell and leave to it."""
    before = table.refresh().metadata_location
    for force in (False, True):
        done = refresh_in_process(declaration, run_id="unchanged", force=force)
        assert (done["action"], due in done["reason"]) == ("none", True), done["reason"]
    assert table.refresh().metadata_location == before
    done = refresh(table, declaration, "maintenance", maintenance=True)
    assert due in done["reason"]
    assert refresh(table, declaration, "after that", maintenance=True)["action"] == "none"
    return done


def newest(table):
    """Return the version that serves the head.

    Published in mode `statistics` after a rollback, it is registered under an older snapshot than
    others.
    """
    return open_index(table, builds.INDEX).version


def blob_digests(table):
    """Digests of the newest version's blobs, by type."""
    version, found = newest(table), {}
    with version.files(table.io) as files:
        for place in files.every_place(version.staged):
            digest = place.metadata.properties.get("digest")
            found.setdefault(place.metadata.type, set()).add(digest)
    return found


def assert_right(table, declaration, snapshot_id=None):
    head = snapshot_id or table.current_snapshot().snapshot_id
    index = open_index(table, builds.INDEX, head)
    rows = builds.live(table, head)
    for k in (3, len(rows[0]) + 2):
        builds.assert_answers_are(index, rows, QUERIES, k)
    builds.assert_within(index, rows, QUERIES, (0.2,))
    if snapshot_id is None:
        assert (index.view.rows_masked, index.view.rows_to_scan) == (0, 0)


def shards(table):
    return {shard.shard_id: shard for shard in newest(table).routing.shards}


def delete_merge_on_read(table, per_file):
    """Delete the first rows of each data file by position."""
    files = [task.file.file_path for task in table.scan().plan_files()]
    delete_positions(table, {path: list(range(per_file)) for path in files})
    table.refresh()


def compact(table):
    """Every live row into one new file, as rewrite_data_files does."""
    table.overwrite(table.scan().to_arrow())


def roll_back(table, snapshot_id):
    table.manage_snapshots().create_branch(
        snapshot_id=snapshot_id, branch_name=f"b{len(table.refs())}"
    ).commit()
    table.manage_snapshots().set_current_snapshot(snapshot_id=snapshot_id).commit()
    table.refresh()
