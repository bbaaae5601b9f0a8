"""HNSW: hnswlib builds the layers, our own kernels search them.

Malkov, Yashunin: Efficient and robust approximate nearest neighbor search using Hierarchical
Navigable Small World graphs, IEEE TPAMI 42(4), 2020.

`hnswlib_index` has hnswlib build and extend graphs, `layers` holds them as arrays that were
checked, and `search` searches them, by the loops in `kernels`.
"""
