"""What searches of graphs share, whichever engine built the graph.

`space` holds rows in the form that graphs compare them in, `kernels_beam` is the beam search over
them, with the two pools of `kernels_frontier`; `kernels_prune` chooses neighbours,
`live_lists` chooses them anew, past deleted rows, for a mask that stays, and `hollows` notes where
those lay close together, which `kernels_hollows` compares with a query;
`kernels_connectivity` keeps every row reachable, `kernels_answer` measures what was found exactly,
and `searcher` makes whole answers of what a graph finds. `arguments` are the groups of arguments
that kernels take, `primitives` the types and small functions of all of them.
"""
