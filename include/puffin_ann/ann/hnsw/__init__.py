"""HNSW: hnswlib builds the layers, our own kernels search them.

Malkov, Yashunin: Efficient and robust approximate nearest neighbor search using Hierarchical
Navigable Small World graphs, IEEE TPAMI 42(4), 2020.
"""
