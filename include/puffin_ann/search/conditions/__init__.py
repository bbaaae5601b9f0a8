"""Searches among the rows that satisfy a condition.

`allowed_rows` says of a version's shards and files, and of rows that it does not cover, which rows
satisfy it; `shard_rows` compares queries with those of one shard, `gathered` with those of all in
one go. Few rows are found in the shards by `live_places`, and `kept_shards` bounds what is kept of
shards for a condition. `kept` keeps what is known of conditions, by snapshot, for the next search.
`ways` estimates what each way to answer costs, at the `paces` of this process, and sifts near rows,
of which `sifted` remembers how that went; what was found to cost least, `decisions` keep for a
while. What a search is told to take, `expected` adds up.
"""
