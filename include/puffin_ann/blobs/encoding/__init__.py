"""What blobs are made of.

A blob is a `container` of checksummed sections. What is in those is encoded as `blocks` that are
compressed one by one, as `bitmaps`, `strings` or `varints` (looped over by `kernels`). `mapped` is
the form on disk that a shard is searched in, and `metrics` has the codes of metrics.
"""
