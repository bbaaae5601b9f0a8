"""The shard tier: shards and deltas of a version, searched for one snapshot.

`tier` searches them, where `routes` sends each query, as far as `reach` tells; `opened` keeps those
that are open; `load` brings a shard to local disk, from the `blobs` that its files have of it;
`snapshot_shard` masks its rows and has it answer; `rows` reads where its rows are without the rest,
and leaves out shards that cannot be read; `table_rows` reads the vectors that shards have not;
`deleted_rows` finds those that are not live by a look at few, and `lost_tombstones` those that no
blob tells of any more; `tie_breaks` orders equal distances; `range` gives the shards and rows that
a range search compares; `among` answers under conditions: `sifting` tries near rows first,
`comparison` compares all that may be answered, `costs` tells where that pays; `few` has several
shards answer a few queries in one call, which looks up where their rows are `located`; `cold`
searches shards that are not on local disk by ranges of their blobs, and `meanwhile` those that are
too small for that are read `together`.
"""
