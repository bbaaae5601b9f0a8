"""Keep compiled kernels, and start them without what compiled them.

`simd_levels` names what instructions a machine has. `kernel_folders` tells where kernels for a
machine are, and which of those folders are safe; `kernel_files` loads and keeps one of them.
`numba_start` loads it without Numba's own modules, and `numba_cache` has Numba take kernels from
there.
"""
