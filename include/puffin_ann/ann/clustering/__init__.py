"""Clusters of rows, and codes for them.

`kmeans` trains centroids; `centroids` and `bounds` say by centroid and radius what can be left out;
`shard_assignment` deals cells to shards; `product_quantisation` trains and applies codebooks.
"""
