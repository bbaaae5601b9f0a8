"""Decide what a refresh does. Pure: data in, data out, no tables and no files.

`decide` is the decision, from the state of the base version, what changed since and the
declaration, all in `inputs`; `decision` is what comes out. `required` tells what a version itself
asks for, `forecast` estimates rows by shard, `cost` bytes and seconds, `drift` whether the added
rows still fit the index, and `explain` puts the decision into words. `approval` tells of which
builds a person is asked first. `kept_recall` tells whether a changed shard finds as much as the one
it replaces, and `undone` when a merge that was refused for that is tried again.
"""
