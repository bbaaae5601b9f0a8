"""Decide which of a table's files may go; nothing is deleted here.

`rules` applies the declared retention to published versions, `tags` says which of them keep their
tags. `removable` lists what no index needs
any more. `withheld` says which of these must stay all the same, since another catalog entry or a
clone of the table may need them; `foreign_history` puts that into words.
"""
