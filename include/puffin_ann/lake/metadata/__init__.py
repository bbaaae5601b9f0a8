"""Iceberg's metadata files: a table's own, earlier ones, and those of others beside them.

`files` finds and reads them, `fields` checks what is taken from them. `log` has what earlier files
of a table named, `registered` the Puffin files its metadata names, `own_tags` the tags that hold
such files, `dropped` which indexes were dropped, `expiry` which snapshots an expiry would leave.
`index_snapshots` tells snapshots by which versions were once published from those of data.
`foreign` finds metadata that is not of the table's history; `forgotten` lists what a user asked to
ignore. `abandoned` proves that no table needs what is at a location.
"""
