"""Recognise rows after a rewrite.

`row_identity` does so by what a row holds (`kernels_identity`), `row_lineage` by row ids where the
table has them; `rewriting_commits` says whether these are to be believed.
"""
