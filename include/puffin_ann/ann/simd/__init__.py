"""Vector instructions for Numba kernels, and the kernels that all others are built on.

`vectors` and `intrinsics` give vectors of sixteen numbers, `kernels_distance` distances of rows,
`fastscan` sums of table look-ups for blocks of quantised rows, and `kernels_order` puts candidates
in order.
"""
