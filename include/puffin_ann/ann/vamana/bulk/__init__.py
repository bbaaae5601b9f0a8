"""Build a graph in bulk, by partitions, after PiPNN (arXiv 2602.21247).

`bulk_build` does so by `kernels_bulk_build`, for wide rows by their `leading_axes`.
"""
