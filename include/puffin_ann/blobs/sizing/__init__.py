"""How large an index will be: `sizes` of each blob for an index of a `shape`.

What compression makes of neighbours and row positions is measured on `sampled` ones.
"""
