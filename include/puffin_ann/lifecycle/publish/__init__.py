"""Assemble one Puffin file of all indexes of a table, and commit it.

`assemble` takes what a build or a refresh made, adds the `carried_blobs` of other indexes, has the
file put together by the store, which `make_file` tells the progress of, and commits it; `discard`
deletes a file that was refused. `republish` publishes what is published already, on top of another
snapshot. `run_records` is the history of runs that travels with the index.

In: the workspace of a run whose stages are done. Out: a `PublishedVersion`.
"""
