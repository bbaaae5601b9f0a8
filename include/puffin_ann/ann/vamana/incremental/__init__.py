"""Build a graph row by row (`incremental_build`), or `insert` rows into one.

Their kernels are `kernels_incremental_build` and `kernels_insert`.
"""
