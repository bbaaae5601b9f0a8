"""The file-level tier: an index of centroids, of which only the data files near a query are read.

`tier` chooses the files, reads their vectors and compares them exactly.
"""
