"""Byte layouts of our blob types, each encoder beside its decoder; `docs/format.md` is the spec.

Blobs that fit memory have `encode(x) -> bytes` and `decode(bytes) -> x` (`routing`, `partitions`,
`coverage`, `tombstones`, `centroid`, `directory`); large ones stream with `write(x, out)` and
`read(source)` (`rows`, `columns`) or `unpack(source, directory)` and `open(directory)` (`graph`,
`delta`, `hnsw`, `ivf`). `ivf_ranges` reads some lists of the last one. `coverage_changes`,
`tombstone_changes` and `column_changes` say what changed since one of those was written. `gate`
has the records of a routing blob that say what a build's gate found, `cells` is
the part of a rows blob that says where each cell's rows begin, `rows_v1` reads what earlier
releases wrote. `describe` says what a blob holds. `encoding` has what they are made of.
"""
