"""IVF-PQ: inverted lists of product-quantised rows.

`lists` builds them and `search` searches them, by the kernels in `kernels` and `kernels_lists`, as
far as `reach` says; wide candidates are read by a byte a number first, see `coded_rows`.
"""
