"""Metrics, and exact answers.

`metrics` defines the distances; `exact` finds the nearest rows by comparing all, `range_search` all
rows within a distance, `live_rows` those that a mask leaves alive. `compared_rows` keeps what is
found out of rows that are compared again and again, `byte_rows` among it. `known_masks` tells masks
apart, and `lasting_masks` makes once what searches with one that stays are quicker by. `types`
names what searches return; `blas` and `memmap` limit the threads and the memory maps below.
"""
