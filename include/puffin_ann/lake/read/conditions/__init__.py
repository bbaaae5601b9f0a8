"""Conditions on rows: Iceberg's expressions, and which rows of a snapshot satisfy one.

`condition` binds an expression, or one that `text` reads, to the snapshot's schema; `values` fits
what columns are compared with to their types. `mistakes` says what to write instead of what cannot
be read, and `words` says what an expression asks. `tree` is that in a form that is asked fast,
which `quick_text` reads of simple text at once, and `expression` makes one of PyIceberg's of, by
which files are pruned. `matching_rows` finds its rows: by what manifests
say of files, of which `snapshot_entries` are kept, by the statistics of row groups
(`puffin_ann.lake.read.files`), and of what is left by the rows themselves (`evaluate`).
"""
