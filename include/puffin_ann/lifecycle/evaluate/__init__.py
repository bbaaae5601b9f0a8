"""Measure recall: what a search finds of what an exhaustive search would.

`ground_truth` finds the exact answers of queries, `measure` compares a search with them, `tune`
chooses the cheapest search that reaches a target, `entered_shards` tells what it cannot find,
`scanned_cells` how many cells do where a search has not the shards on local disk, `more_rows` what
more rows take. The gate of a build uses these six. `stages` measures a published index on Spark,
`records` keeps what was measured, and `user_queries` measures with queries that a user brings.
"""
