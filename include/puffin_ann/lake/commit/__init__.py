"""Change the table, by commits that assert what they were planned on.

`commit_index_file` publishes a Puffin file, each `attempt` of it as data; `index_snapshot` is the
snapshot on main that carries it, `tagged_snapshot` one that is on no branch. `statistics_slots`
changes statistics entries without a snapshot, `overwritten_statistics` gives back what a
registration pushed out, and `forget_metadata` records that foreign metadata is ignored.
"""
