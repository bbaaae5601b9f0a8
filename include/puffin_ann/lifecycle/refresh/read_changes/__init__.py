"""Find what changed in the rows of a table since a version was made.

`removed_rows` finds the rows that are not live where the version has them, by shard and ordinal.
In tables that have row ids, `rewritten_files` finds the files that removed rows were in, and
`known_rows` reads their row ids there. `added_rows` reads the live rows that the version does not
cover. `relocated_rows` pairs the two by row identity: such a row was rewritten into another file,
and keeps its place in its shard.
"""
