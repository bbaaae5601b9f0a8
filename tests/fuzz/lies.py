"""Index files that lie: every checksum and digest is right, and what the blobs say is not.

A lie changes what a published file says and nothing else. Left out is what no reader could tell
from the truth without reading the table's vectors: another vector, two rows that change places,
bounds that are too narrow.
"""

import lies_of_coverage
import lies_of_rows
import lies_of_shards
from index_file import LIES, IndexFile, Lie, NotApplicable

__all__ = [
    "LIES",
    "IndexFile",
    "Lie",
    "NotApplicable",
    "lies_of_coverage",
    "lies_of_rows",
    "lies_of_shards",
]
