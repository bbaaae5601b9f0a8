"""Read the data of a table.

`files` says which data files are live, by manifests that `avro` decodes within its bounds, and
`deletes` which of their rows are not. `data` reads vectors and other columns. `identity`
recognises rows after a rewrite; `diff` compares an index version with a snapshot. `conditions`
finds the rows that satisfy one. `errors` has readers' errors name the file they are about, and
`parquet_streams` keeps Arrow's threads from streams of Python's.
"""
