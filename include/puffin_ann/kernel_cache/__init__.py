"""Keep compiled kernels, and start them without what compiled them.

`numba_cache` keeps them by machine and source, `numba_start` loads them without Numba's own
modules, `simd_levels` names what instructions a machine has.
"""
