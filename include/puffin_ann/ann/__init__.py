"""The algorithms: arrays in, arrays out. Nothing here knows files, tables or blobs.

    vamana | hnsw | ivf    the engines' own structures: build, insert, search
    graph                  what searches of graphs share
    clustering             k-means, bounds by centroid and radius, product quantisation
    signs                  rows by the sign of each number: of many, those that may be near
    exact                  the nearest rows by comparing every one
    core                   metrics, masks, threads of the linear algebra library
    simd                   vector instructions, for which the kernels are compiled

A file named `kernels_*` holds loops that Numba compiles; the file without the prefix calls them.
"""

from puffin_ann.imports.deferred_imports import defer

defer("yaml")  # which Numba imports for a file of configuration
