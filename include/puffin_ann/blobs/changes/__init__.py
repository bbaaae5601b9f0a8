"""Blobs that say what changed since another was written.

`coverage_changes`, `tombstone_changes` and `column_changes`, of blobs with these names.
"""
