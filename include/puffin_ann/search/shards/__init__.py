"""The shard tier: shards and deltas of a version, searched for one snapshot.

`tier` searches them and masks rows, where `router` sends each query; `load` brings a shard to local
disk, from the `blobs` that its Puffin file has of it; `tie_breaks` orders equal distances; `range`
gives the shards and rows that a range search compares.
"""
