"""Assemble the Puffin file of a new version, and commit it.

`assemble` takes what a build or a refresh made. Under a tag `layers` tells which blobs stay in the
files of earlier versions; else all of the index goes into the file, and the `carried_blobs` of the
table's other indexes with it. It has the file put together by the store, which `make_file` tells
the progress of, and commits it; `discard` deletes a file that was refused. `republish` publishes
what is published already, under a tag or under the head, of the `published_blobs`; a
`changed_index` gets another name then, or another small blob. `summary` is
what the snapshot says of a version, `run_records` is the history of runs that travels with the
index.

In: the workspace of a run whose stages are done. Out: a `PublishedVersion`.
"""
