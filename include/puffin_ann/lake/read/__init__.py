"""Read the data of a table.

`manifests` and `live_files` say which data files are live, decoded by `avro` within their bounds;
`snapshot_entries` keeps what manifests say of a snapshot's data files; `row_deletes`,
`deletion_vector` and `equality_deletes` say which of their rows are not live.
`parquet`, `vector_column` and `vectors` read vectors, `row_vectors` those of single rows,
`columns` other columns: `column_chunks` keeps what it read in memory, and `projection` turns it
into the table's current schema. `row_identity` recognises rows after a rewrite, and so does
`row_lineage` where they have row ids; `rewriting_commits` says whether these are to be believed.
`coverage_diff` and `manifest_diff` compare an index version with a snapshot, `pruning` leaves out
files that cannot hold a key, and `errors` has readers' errors name the file they are about.
`conditions` finds the rows that satisfy one.
"""
