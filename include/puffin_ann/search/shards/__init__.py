"""The shard tier: shards and deltas of a version, searched for one snapshot.

`tier` routes queries to shards and masks rows; `load` brings a shard to local disk, from the
`blobs` that its Puffin file has of it; `tie_breaks` orders equal distances; `range` gives the
shards and rows that a range search compares.
"""
