"""Find tables and snapshots through PyIceberg's own catalog configuration.

`tables` loads them, `listing` names those of a catalog, `index_snapshots` tells those that hold
indexes from a table's own; `sqlite` has them of a catalog in an SQLite file; `timeouts` has
questions to a silent catalog end in time. `embedded` makes a catalog in a folder, and `scope` names
a table for what is kept of it. `configuration` is what PyIceberg knows of catalogs, and what is
wrong with it.
"""
