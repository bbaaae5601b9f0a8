"""Read the published versions of a table's indexes; nothing here changes anything.

`inventory` lists every index file. `base_version` finds the version that a refresh starts from,
`index_state` reads what a decision rests on: the state of that version, and what changed since.
`unreadable` tells what of a version cannot be read, `recorded_declaration` reads the
declaration that an index was published by.
"""
