"""Columns that an index includes: values kept beside the rows of its shards.

`arrow_values` turns columns of the table into what a blob keeps, and back. `kept_columns` opens the
blobs of a version's shards and reads blocks of them. `matching` says of data files which rows
satisfy a condition, `answers` gives columns of rows that are answered; of both the table is asked
for what is not kept. `covered_files` says of which files, and of which of their rows, it matters.

`lookups` has the rows of all values in memory instead: a `column_lookup` of each column, made of
`collected_values`, which `asking` asks what a condition says.
"""
