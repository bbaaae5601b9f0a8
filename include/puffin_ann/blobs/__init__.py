"""Byte layouts of our blob types, each encoder beside its decoder; `docs/format.md` is the spec.

`shards` has the blobs that a shard consists of, `version` those that an index version has, and
`changes` those that say what changed since one of these was written. `describe` says what a blob
holds. `encoding` has what they are made of.

Blobs that fit memory have `encode(x) -> bytes` and `decode(bytes) -> x`; large ones stream with
`write(x, out)` and `read(source)`, or `unpack(source, directory)` and `open(directory)`.
"""
