"""Build a whole index from the live rows of one snapshot.

`plan` and `whole_table` decide what is read by whom. Then come the stages, as `stages` has them:
`train` samples rows and trains the centroids (with `auto_algorithm` choosing an engine where the
declaration leaves it open), `assign` reads the table once and stages its rows by shard, `shard`
builds one shard of rows in `cell_order`, and `gate` measures the recall of `staged_index`, the
unpublished index.

In: a `BuildPlan`. Out: one document per stage, up to `Gated`, which publishing takes.
"""
