"""What the stages of a run hand each other: small JSON documents in the staging folder.

A stage is done when its document exists; the first one created wins. `run` has the documents of
every run and of builds, `refresh` those of refreshes. `run_ref` is what names a run.
`index_properties` has the keys of a routing blob's properties, and reads what runs noted there.
"""
