"""Make a new version of an index out of its base version and what changed since.

`plan` lists what has to be read, once `policy.decide` has said what is due; `remake_cells` makes
cells again that cannot be read. Then the stages run, as `stages` has them: `find_removed` and
`read_changes` find removed, added and relocated rows; `apply_changes` changes the blobs of each
shard; `damage` names the remedy where one of them is damaged. Publishing calls `new_version`, which
makes routing and coverage blobs; `notes` says what is noted in it.

In: a `RefreshPlan`. Out: an `AppliedGroup` for each group of shards, which publishing takes.
"""
