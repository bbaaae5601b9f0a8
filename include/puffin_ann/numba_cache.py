"""Load compiled kernels from Numba's cache without importing what only compiling needs.

Before Numba looks into its cache it imports and registers everything a kernel might be made of:
linear algebra, random numbers, strings, typed lists. That takes three times as long as loading the
kernels of a search, which are machine code and need none of it. Where a kernel is not in the cache,
Numba's compiler does the same anyway before it begins.
"""

from typing import Any

from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher
from numba.core.runtime.nrt import rtsys

_load_any: Any = FunctionCache.load_overload
_enable_any: Any = Dispatcher.enable_caching


def install(*, kept: bool = True) -> None:
    """Have this package's kernels loaded that way in this process.

    Args:
        kept: there is a place for compiled kernels. Without one, Numba would refuse to define them.

    """
    cache: Any = FunctionCache
    cache.load_overload = _load
    if not kept:
        dispatcher: Any = Dispatcher
        dispatcher.enable_caching = _enable


def _enable(self: Any) -> None:
    """Stands in for `Dispatcher.enable_caching` where nothing can be written."""
    if not self.py_func.__module__.startswith("puffin_ann."):
        _enable_any(self)


def _load(self: Any, sig: Any, target_context: Any) -> Any:
    """Stands in for `FunctionCache.load_overload`; kernels of other packages load as ever."""
    if not self._py_func.__module__.startswith("puffin_ann."):
        return _load_any(self, sig, target_context)
    start: Any = rtsys.initialize
    start(target_context)  # memory for arrays that a kernel makes
    with self._guard_against_spurious_io_errors():
        return self._load_overload(sig, target_context)
