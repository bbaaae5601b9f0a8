"""Answer few queries on several shards in one kernel.

`few` does so by `kernels_few`; `located` finds the places of what it found by `kernels_located`.
"""
