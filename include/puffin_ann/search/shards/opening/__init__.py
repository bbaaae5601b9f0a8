"""Open shards: bring their `blobs` into the cache, and what a search needs into memory.

`opened` has the shards that one index opened, each a `snapshot_shard`, a shard at one snapshot.
`load` opens files of the cache, `together` brings what several shards lack in one round. `rows`
reads rows blobs, `table_rows` places of rows in the table. `deleted_rows` finds those that are
deleted (`kernels_deleted`), `lost_tombstones` what a version lost of them. `tie_breaks` puts rows
at one distance into order.
"""
