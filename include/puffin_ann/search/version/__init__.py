"""An index version as a search reads it, and a snapshot that it answers for.

`versions` finds the versions of an index, `index_version` is one, with its `version_cells`, read
from `index_files`. `consistency` checks that its parts agree, `row_locators` say where rows lie in
the table, `snapshot_view` is a version seen at a snapshot, `indexed_column` whether its column is
still called there what the index was declared with.
"""
