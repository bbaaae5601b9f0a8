"""Change the blobs of a shard by what `read_changes` found.

`remap` writes tombstones and locators again, where `added_tombstones` does not have the former told
beside those of other shards, and with `changed_columns` the values of rows that moved. `load_rows`
and `take_from_deltas` fetch the rows that a shard takes in, `table_vectors` the vectors of those it
has where it has them not as they are. `rewrite_shard` inserts them or builds the shard again, and
`make_delta` makes a delta of them; `made_shard` stages either. `check_recall` measures a shard and
`judge_recall` compares it with the one that it is to replace.
"""
