"""Search an index at a snapshot: exact distances, and never a row that is not live there.

`open_index` opens an `index`, which searches with the parts of a `bound_version`: a `version` at a
snapshot; `shards` or `files` search what it covers; `brute_force` scans live rows that it does not
cover; `merge` makes one answer of many; `answers` returns it as a table of `results`. `failover`
takes another version where one is damaged, or has rows of damaged shards scanned. `range_search`
finds every row within a distance, `row_by_key` the vector of a row to search with. `questions`
says what can be asked, `conditions` which rows a condition lets be answered, `included` what is
kept of columns. `cache` keeps unpacked shards on local disk. Parts of a search note in `explain`
what they do, if it is asked for; `explained` puts that together.
"""

from puffin_ann import lake as lake  # before PyIceberg is imported: it sees to how that is
