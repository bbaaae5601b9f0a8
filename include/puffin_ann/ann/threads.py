"""Threads: Python's own over kernels that release the GIL, and one BLAS thread inside each.

Numba's parallel loops are not used: their thread layers are not safe to enter from several Python
threads, do not survive a fork, and double the compile time. OpenBLAS would start a team of threads
for every product, on top of ours; it is held to one thread while ours run, which also makes its
results independent of how many there are.
"""

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")
Result = TypeVar("Result")

_SETTERS = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_")
_GETTERS = ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_")


def run(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> list[Result]:
    """Apply a function to every item on up to `threads` threads; results in order of the items."""
    waiting = list(items)
    with single_threaded_blas():
        if threads <= 1 or len(waiting) <= 1:
            return [function(item) for item in waiting]
        with ThreadPoolExecutor(min(threads, len(waiting))) as pool:
            return list(pool.map(function, waiting))


def ranges(total: int, size: int) -> list[slice]:
    """Cut `range(total)` into slices of `size`, the last one shorter."""
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


class _Blas:
    """NumPy's own OpenBLAS, if that is what it was built with."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 1
        self._get, self._set = _openblas()

    def enter(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._before = self._get()
                self._set(1)

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._set(self._before)


@lru_cache(maxsize=1)
def _blas() -> _Blas:
    return _Blas()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Hold NumPy's BLAS to one thread; nests, and may be entered by several threads."""
    blas = _blas()
    blas.enter()
    try:
        yield
    finally:
        blas.leave()


def _openblas() -> tuple[Callable[[], int], Callable[[int], object]]:
    package = Path(np.__file__).parent
    folders = (package.parent / "numpy.libs", package / ".dylibs")
    for path in (p for folder in folders for p in folder.glob("*openblas*")):
        library = ctypes.CDLL(str(path))  # loaded already: this gives the same library again
        for getter, setter in zip(_GETTERS, _SETTERS, strict=True):
            if hasattr(library, getter) and hasattr(library, setter):
                return getattr(library, getter), getattr(library, setter)
    return (lambda: 1), (lambda _: None)
