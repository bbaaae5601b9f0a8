"""Compare an index version with a snapshot.

`coverage_diff` does so by live files, `manifest_diff` by manifests.
"""
