"""Vamana: a proximity graph, built by partitions, searched by beam.

After DiskANN (Subramanya et al., NeurIPS 2019) with the bulk build of PiPNN (arXiv 2602.21247).
Everything here works in the search space of the metric, where squared L2 orders as the metric does,
on rows padded with zeros to a multiple of 16 numbers.

`build` makes a graph: in `bulk`, or row by row for small shards (`incremental`), as rows are
inserted into one; by inner product it gets `product_edges` besides. `append_files` makes the files
of a shard that grows. `search` searches it, by packed nodes (`packed`) where `packed_policy` says
that they are worth their room; a query `alone` takes a shorter way there, and `several` searches
several graphs of those at once.
"""
