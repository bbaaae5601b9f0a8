"""Blobs of a shard: its graph or lists, and its rows.

`graph`, `hnsw` and `ivf` hold what their engines search, `delta` rows without a graph;
`ivf_ranges` reads some lists. `rows` says which rows of the table a shard has, `identities` finds
them again in other files, `cells` says where each cell's begin, `columns` what the index includes
of them; `rows_v1` reads what earlier releases wrote.
"""
