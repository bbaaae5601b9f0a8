"""Metrics, and exact answers.

`metrics` defines the distances; `exact` finds the nearest rows by comparing all, `range_search` all
rows within a distance, `live_rows` those that a mask leaves alive. `types` names what searches
return; `blas` and `memmap` limit the threads and the memory maps below.
"""
