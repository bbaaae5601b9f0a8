"""Merged shards of wide rows are measured by what searches read.

Wide rows are searched by packed nodes of one bit an edge, once those were made; the search width
was chosen for that.
"""

import numpy as np
import pyarrow as pa

from puffin_ann import open_index
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from tests.support.lifecycle import builds

DIMENSION = 272


def rows(ids: range) -> pa.Table:
    """Rows about twenty centres."""
    generator = np.random.default_rng(5)
    centres = generator.normal(size=(20, DIMENSION))
    own = np.random.default_rng(list(ids)).normal(size=(len(ids), DIMENSION))
    vectors = (centres[np.arange(len(ids)) % 20] + own).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
    return pa.table(
        {"id": pa.array(list(ids), pa.int64()), "embedding": column.cast(pa.list_(pa.float32()))}
    )


def test_they_are_merged_and_not_put_off(catalog):
    first = rows(range(2400))
    table = catalog.create_table("demo.words", schema=first.schema)
    table.append(first)
    declaration = builds.declaration(
        algorithm="vamana",
        shards=2,
        partitions_per_shard=8,
        recall_target=0.98,
        gate={"queries": 100, "k": 10},
    )
    builds.build(declaration, "build")
    table.refresh().append(rows(range(2400, 2640)))
    done = refresh_in_process(declaration, run_id="merge", force=True)
    index = open_index(table.refresh(), builds.INDEX)
    assert "merge" in done["reason"]
    assert {shard.kind for shard in index.version.routing.shards} == {"graph"}
    assert sum(shard.rows for shard in index.version.routing.shards) == 2640
    assert (index.view.rows_to_scan, index.view.rows_masked) == (0, 0)
