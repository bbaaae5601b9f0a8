"""Conditions on rows: Iceberg's expressions, and which rows of a snapshot satisfy one.

`condition` reads an expression and binds it to the snapshot's schema. `matching_rows` finds its
rows: by what manifests say of files (`puffin_ann.lake.read.pruning`), by the statistics of row
groups (`row_group_statistics`), and of what is left by the rows themselves (`evaluate`).
"""
