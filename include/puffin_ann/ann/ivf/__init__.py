"""IVF-PQ: inverted lists of product-quantised rows.

`lists` builds them and `search` searches them, by the kernels in `kernels`, `kernels_lists`,
`kernels_scan` and `kernels_refine`, as far as `reach` says, and with as many `candidates` as the
codes ask for; wide ones are read by a byte a number first, see `coded_rows`.
"""
