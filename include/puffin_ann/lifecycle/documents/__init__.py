"""What the stages of a run hand each other: small JSON documents in the staging folder.

A stage is done when its document exists; the first one created wins. `run` has the documents of
every run and of builds, `refresh` those of refreshes. `run_ref` is what names a run.
`index_properties` reads and writes what runs note in an index, a routing blob's properties, and
among it each run's `run_record`.
"""
