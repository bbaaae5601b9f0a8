"""Refreshes of small tables, held to brute force after every one of them."""

import builds
import numpy as np
import pyarrow as pa
import pytest
from lake_tables import delete_positions

from puffin_ann import open_index
from puffin_ann.lifecycle.decision import DRIFT, NEXT_FILE_ID, RATES, Drift, Rates
from puffin_ann.lifecycle.refresh import refresh_in_process
from puffin_ann.search.versions import require_versions

QUERIES = np.random.default_rng(5).normal(size=(4, builds.DIMENSION)).astype(np.float32)
ALGORITHMS = ("exact", "vamana", "hnsw", "ivf_pq", "centroid")
METRICS = ("l2", "cosine", "ip")


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
            one.snapshot_id for one in table.snapshots()
        }
    assert_right(table, declaration)
    return done


def newest(table):
    return require_versions(table, builds.INDEX)[0]


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
    return {one.shard_id: one for one in newest(table).routing.shards}


@pytest.fixture
def indexed(words):
    builds.build(declared(), "build")
    return words.refresh()


def test_rows_appended_become_a_delta(indexed):
    before = shards(indexed)
    indexed.append(builds.rows(range(60, 63)))
    done = refresh(indexed, declared(refresh={"delta_ratio": 1.0}))
    assert done["action"] == "refresh"
    after = shards(indexed)
    assert (after[2].kind, after[2].rows) == ("delta", 3)
    assert {number: after[number].rows for number in before} == {
        number: one.rows for number, one in before.items()
    }
