"""Index files that lie: every checksum and digest is right, and what the blobs say is not.

A lie changes what a published file says and nothing else. Left out is what no reader could tell
from the truth without reading the table's vectors: another vector, two rows that change places,
bounds that are too narrow.
"""

from tests.support.falsified import (
    falsified_columns,
    falsified_coverage,
    falsified_layers,
    falsified_rows,
    falsified_shards,
)
from tests.support.falsified.index_file import LIES, IndexFile, Lie, NotApplicable

__all__ = [
    "LIES",
    "IndexFile",
    "Lie",
    "NotApplicable",
    "falsified_columns",
    "falsified_coverage",
    "falsified_layers",
    "falsified_rows",
    "falsified_shards",
]
