"""Measure recall: what a search finds of what an exhaustive search would.

`ground_truth` finds the exact answers of queries, `measure` compares a search with them, `tune`
chooses the search that reaches a target at the least `effort`, `entered_shards` tells what one
cannot find, `scanned_cells` how many cells do where a search has not the shards on local disk,
`more_rows` what more rows take. The gate of a build uses these seven. `stages` measures a published
index on Spark, `records` keeps what was measured, and `user_queries` measures with queries that a
user brings.
"""
