"""Say which rows of live files are deleted: `row_deletes`, of all kinds.

`deletion_vector` reads those of format version 3, `equality_deletes` finds the rows that equal
deleted keys.
"""
