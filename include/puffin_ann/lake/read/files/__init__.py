"""Say which data files of a snapshot are live.

`manifests` reads manifests, `live_files` the files that they leave live. `pruning` leaves out
files that cannot hold a key, `row_group_statistics` says of row groups what manifests say of
files.
"""
