"""Read rows of the table, for builds and refreshes.

`preconditions`, `key_column` and `included_columns` refuse tables over which an index cannot be
built; the latter reads values of columns as shards are made. `row_groups` reads one row group: live
rows with usable vectors. `parts` reads a task's share of the table in several threads, `sampling`
reads random row groups, and `segments` stages rows grouped by shard.
"""
