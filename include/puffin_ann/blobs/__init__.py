"""Byte layouts of our blob types, each encoder beside its decoder; `docs/format.md` is the spec.

Every blob is a `container` of checksummed sections. Blobs that fit memory have `encode(x) -> bytes`
and `decode(bytes) -> x` (`routing`, `partitions`, `coverage`, `tombstones`, `centroid`); large ones
stream with `write(x, out)` and `read(source)` (`rows`) or `unpack(source, directory)` and
`open(directory)` (`graph`, `delta`, `hnsw`, `ivf`).

Sections are made of `blocks`, `bitmaps`, `strings` and `varints` (looped over by `kernels`);
`mapped` is the form on disk that a shard is searched in, `metrics` has the codes of metrics, and
`describe` says what a blob holds. `shape`, `sizes` and `sampled` predict how large an index will
be.
"""
