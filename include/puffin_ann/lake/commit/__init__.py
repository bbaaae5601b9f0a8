"""Change the table, by commits that assert what they were planned on.

`commit_index_file` publishes a Puffin file, each `attempt` of it as data, in the way that
`publish_mode` decides on: `tagged_snapshot` is a snapshot that is on no branch, `index_snapshot`
one on main. `statistics_slots` changes statistics entries without a snapshot,
`overwritten_statistics` gives back what a registration pushed out, and `forget_metadata` records
that foreign metadata is ignored.
"""
