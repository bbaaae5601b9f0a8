"""Write the first declaration of an index, for a table that has none.

`look` reads a few rows of a table; `suggest` concludes from them, and is pure; `write` makes a file
of it that a person can go on with, each line with its reason. `import_parquet` makes a table of a
Parquet file first, for users who have no table yet.
"""
