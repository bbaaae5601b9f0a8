"""Vector instructions for Numba kernels, and the two kernels that all others are built on.

`vectors` and `intrinsics` give vectors of sixteen numbers, `kernels_distance` distances of rows,
and `fastscan` sums of table look-ups for blocks of quantised rows.
"""
