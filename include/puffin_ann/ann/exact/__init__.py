"""Exact answers, by comparing every row.

`brute_force` finds the nearest rows, `range_search` all within a distance, `live_rows` the nearest
that a mask leaves alive. `compared_rows` keeps what is found out of rows that are compared again
and again: `byte_rows` among it, of which a quarter of the memory rules out most. `selected_rows`
are some rows of several arrays, which `row_addresses` has read where they lie. `nearest_in` parts
rows among threads. Kernels: `scan` looks at products of float32, `coding` makes the codes,
`products` multiplies them, `compare` finds the nearest by both.
"""
