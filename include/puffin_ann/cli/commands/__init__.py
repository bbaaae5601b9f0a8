"""The commands of `puffin-ann`, one file each, named as they are typed.

`setup` has those that prepare, `runs` those that start or foretell a run, `reading` those that
only read, `upkeep` those that remove or rename.
"""
