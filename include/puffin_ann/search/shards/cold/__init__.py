"""Shards that are not on local disk, searched by ranges of their blobs.

Rows of a shard stand in the order of cells: those of the cells nearest to a query are compared,
whatever the engine, and nothing else of the shard is read. `nearest_cells` chooses them, `scan`
compares them, and `parts` reads and verifies what it takes of a shard's blobs. Of shards without
vectors the lists nearest to a query are read, which `listed` knows; `scan_lists` finds candidates
there, and has the table's vectors of those. `tier` has shards answer so, as far as `decide` tells
that it takes less than to bring them to local disk. `requests` foretells how many it takes.
"""
