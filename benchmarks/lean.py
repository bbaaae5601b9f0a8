"""What an index without vectors takes, and finds: `ivf_pq` with `vectors: none`, by its defaults.

Its distances are exact all the same, by the vectors of the table's rows; recall is that of searches
from local disk as wide as the build's gate found to be enough.
"""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks import lakehouse
from benchmarks.data import NEIGHBOURS, DataSet, load
from benchmarks.results import Result, Row

SETS = ("glove-100d", "gloss-384d-117k", "gloss-768d")
QUERIES = 300
RAW_SHARE = 0.12
"""Of the vectors' bytes, from `WIDE` dimensions on."""
WIDE = 384
ROW_BYTES = {768: 240}
"""Bytes of a row, where the paper gives them for a billion rows."""
RECALL = 0.95


def measure(rounds: int) -> Result:
    """Build an index of each set; sizes are the same each time, so once, whatever `rounds`."""
    del rounds
    result = Result(family="lean")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        lakehouse.configure(Path(temporary))
        for name in SETS:
            _measured(result, load(name))
    return result


def _measured(result: Result, data: DataSet) -> None:
    from puffin_ann.lifecycle.runtime.runners import InProcess
    from puffin_ann.search.open_index import open_index

    rows, dimension = data.vectors.shape
    named = data.name.replace("-", "_")
    lakehouse.create_table(data.vectors, name=named)
    table = f"{lakehouse.CATALOG}.vectors.{named}"
    # One shard: those of large indexes have as many rows at least.
    declared = lakehouse.declared(table=table, algorithm="ivf_pq", vectors="none", shards=1)
    lakehouse.build(declared, f"build-{named}", InProcess())
    index = open_index(table, "bench")
    recall = _recall(index, data)
    size, width = index.version.length, index.version.routing.search_width
    each, raw = size / rows, 4 * dimension
    note = f"recall@10 {recall:.3f} (width {width})"
    result.facts.append(
        f"{data.title}, `vectors: none`: {each:.0f} bytes a row, {each / raw:.3f} of the vectors'; "
        f"{note}"
    )
    if dimension < WIDE:
        return
    result.rows.append(
        Row(
            key=f"lean-{dimension}d",
            what=f"an index without vectors ÷ the vectors, recall@10 ≥ {RECALL}, {data.title}",
            ours=f"{size / 1e6:.1f} MB",
            theirs=f"{data.vectors.nbytes / 1e6:.1f} MB",
            measured=each / raw if recall >= RECALL else float("inf"),
            least=RAW_SHARE,
            aim=RAW_SHARE / 2,
            below=True,
            note=note,
        )
    )
    if dimension in ROW_BYTES:
        result.rows.append(
            Row(
                key=f"lean-{dimension}d-row",
                what=f"the same: bytes of a row, {data.title}",
                ours=f"{each:.0f} B",
                theirs="–",
                measured=each,
                least=ROW_BYTES[dimension],
                aim=ROW_BYTES[dimension] / 2,
                below=True,
                unit=" B",
                note=note,
            )
        )


def _recall(index: Any, data: DataSet) -> float:
    """Return recall@10; equal distances count as found."""
    queries = data.queries[:QUERIES]
    found = index.search(queries, NEIGHBOURS).column("distance").to_numpy()
    true = ((data.vectors[data.truth[:QUERIES, -1]] - queries) ** 2).sum(axis=1) ** 0.5
    hits = (found.reshape(len(queries), NEIGHBOURS) <= true[:, None] * (1 + 1e-5)).sum()
    return float(hits) / (len(queries) * NEIGHBOURS)
