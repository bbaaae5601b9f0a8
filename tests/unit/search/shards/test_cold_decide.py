"""Which shards are brought to local disk, whatever figures index files have of them."""

import numpy as np

from puffin_ann.blobs.version.routing import ShardEntry
from puffin_ann.search.shards.cold.decide import is_too_much


def test_a_shard_is_brought_of_which_most_rows_are_wanted():
    entries = [ShardEntry(number, "", rows, 0, 0, "graph") for number, rows in enumerate([100, 8])]
    assert is_too_much(np.array([75, 7], np.uint64), entries, 4).tolist() == [False, True]


def test_where_none_is_brought_one_without_rows_is_no_exception():
    entries = [ShardEntry(number, "", rows, 0, 0, "graph") for number, rows in enumerate([0, 8])]
    wanted = np.array([0, 8], np.uint64)
    assert is_too_much(wanted, entries, 4, np.inf).tolist() == [False, False]
