"""Objects of a table's store.

Everything that is not Parquet is read through `objects`, and `outages` tells "not there", "not
readable now" and "damaged" apart; `ranges` reads many parts of objects at once, on S3 as
`signed_once` has them, `sparse_file` gives such parts as a file. `credentials` renews those that a
catalog lends for a while. `listing` lists and removes, `staging` hands objects from stage to stage,
`leases` let one holder work at a time. A new object is put together by `assemble`; `s3` is what
FileIO cannot do there. `locations` says which places an index file may name, `store_properties`
which of a table's properties would send its reader's requests elsewhere.
"""
