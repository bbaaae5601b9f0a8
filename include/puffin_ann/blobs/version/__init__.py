"""Blobs of an index version: what it has, covers and leaves out.

`routing` says how it was made and where its shards are, with the records of `gate` that say what
a build's gate found; `partitions` has the centroids of cells, `centroid` those of data files, and
`directory` the places of blobs. `coverage` names the rows that the version has, `tombstones`
those of a shard that are deleted.
"""
