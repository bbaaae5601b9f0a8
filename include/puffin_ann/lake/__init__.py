"""What the library knows of tables: catalog, live files, row deletes, vectors, staging, commits."""
