"""Tell people and machines about indexes; nothing here changes anything.

`status` is what is published and how well it covers the table, `history` the runs of an index,
`staleness` how far an index is behind and whether a run is due, `plan` what the next run would do,
`overview` all of that as one small document, `list_tables` the tables of a catalog, `figures` an
index in numbers, for events and metrics, `lineage` what a version was made of. In: a table, and the
declarations on it. Out: pydantic models, which print as JSON, and tables.
"""
