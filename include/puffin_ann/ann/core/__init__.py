"""What every search is made of.

`metrics` defines the distances. `known_masks` tells masks apart, and `lasting_masks` makes once
what searches with one that stays are quicker by. `types` names what searches return; `blas` and
`memmap` limit the threads and the memory maps below.
"""
