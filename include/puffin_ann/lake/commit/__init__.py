"""Change the table, by commits that assert what they were planned on.

`commit_index_file` publishes a Puffin file, each `attempt` of it as data, in the way that
`publish_mode` decides on: by a `tagged_snapshot`, which is on no branch, or by the statistics of a
snapshot that is there. `statistics_slots` changes statistics entries without a snapshot,
`overwritten_statistics` gives back what a registration pushed out, and `forget_metadata` records
that foreign metadata is ignored.
"""
