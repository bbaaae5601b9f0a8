"""Change the table, by commits that assert the head they were planned on.

`commit_index_file` publishes a Puffin file, each `attempt` of it as data; `index_snapshot` is the
snapshot that carries it. `statistics_slots` changes statistics entries without a snapshot,
`overwritten_statistics` gives back what a registration pushed out, and `forget_metadata` records
that foreign metadata is ignored.
"""
