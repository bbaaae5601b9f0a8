"""Packed nodes: each row of a graph with quantised codes of its neighbours, read in one go.

`layout` says what is where, `kernels_pack` and `kernels_edges` make the packed nodes,
`kernels_tables` places a query among them, `kernels_walk` is the beam search over them,
whose candidates `kernels_pool` keeps, `kernels_measure` measures what it found, and
`kernels_search` answers queries by them; `placed` tells it where graphs lie, and `neighbours` takes
the graph itself out of them.
"""
