"""Byte layouts of our blob types, each encoder beside its decoder; `docs/format.md` is the spec.

Every blob is a `container` of checksummed sections. Blobs that fit memory have `encode(x) -> bytes`
and `decode(bytes) -> x` (`routing`, `partitions`, `coverage`, `tombstones`, `centroid`); large ones
stream with `write(x, out)` and `read(source)` (`rows`) or `unpack(source, directory)` and
`open(directory)` (`graph`, `delta`, `hnsw`, `ivf`).
"""
