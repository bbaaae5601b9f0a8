"""The shard tier: shards and deltas of a version, searched for one snapshot.

`tier` searches them, where `routes` sends each query, `placed` among their cells, as far as `reach`
tells, and farther from cells that were `emptied`. `opening` brings them to local disk and masks the
rows that are not live; `range` gives the shards and rows that a range search compares. `among`
answers under conditions: `sifting` tries near rows first, `comparison` compares all that may be
answered, `costs` tells where that pays. `several` has shards answer a few queries in one call.
`by_ranges` has `cold` search shards that are not on local disk by ranges of their blobs, and
`meanwhile` those that are too small for that are opened. `warming` loads what searches call.
"""
