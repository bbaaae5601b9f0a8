"""What blobs are made of.

A blob is a `container` of checksummed sections, its `container_layout` apart; `block_sums` has the
checksums of parts of long ones. What is in sections is encoded as `blocks` that are compressed one
by one, as `bitmaps`, `strings` or `varints` (looped over by `kernels`, whose errors are
`varint_faults`). `mapped` is the form on disk that a shard is searched in, `stored_vectors` has the
forms of vectors, and `metrics` the codes of metrics.
"""
