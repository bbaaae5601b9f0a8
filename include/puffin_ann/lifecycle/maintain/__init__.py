"""Keep published indexes registered, sound and few; rename and drop them.

`guard` registers versions that other engines' maintenance deregistered, by what `guard_plan`
decides. `clean` removes what
`retention` says may go, `clean_location` what a dropped table left; `forget_metadata` has `clean`
ignore metadata files that nobody needs. `examination` finds what is wrong. `plan_repair` tells what
it takes to make damaged shards again, `lost_tombstones` makes tombstone changes again, and
`repair` replaces what else is damaged. `drop` and
`rename` are the two commands that change which indexes a table has; `former_names` tells which
index a new name may stand for. `gather` makes one file of an index.

In: a table, and the declarations on it. Out: reports of what was found and done.
"""
