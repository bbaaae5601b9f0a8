"""Rows by the sign of each of their numbers once they are rotated, or by two bits of each.

`kernels_rotate` rotates, `kernels_codes` codes and orders what a scan reads, `kernels_tables` turns
a query into look-up tables: packed nodes of `vamana` code their edges so, too. `kernels_blocks`
codes rows that lie anywhere, in a `frame`, and puts codes into blocks; `row_codes` keeps those of
each row once. `kernels_nearest` finds the rows near a query, and `sign_rows` is for whoever asks
for them. `selected_rows` are compared so, or by a byte a number, as it suits.
"""
