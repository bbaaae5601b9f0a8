"""Vamana: a proximity graph, built by partitions, searched by beam.

After DiskANN (Subramanya et al., NeurIPS 2019) with the bulk build of PiPNN (arXiv 2602.21247).
Everything here works in the search space of the metric, where squared L2 orders as the metric does,
on rows padded with zeros to a multiple of 16 numbers.
"""
