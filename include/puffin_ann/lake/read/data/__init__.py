"""Read columns of data files.

`parquet`, `vector_column` and `vectors` read vectors, `row_vectors` those of single rows,
`columns` other columns: `column_chunks` keeps what it read in memory, and `projection` turns it
into the table's current schema. `types_in_words` has the types of columns for messages.
"""
