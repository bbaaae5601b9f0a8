"""How kernels are compiled: each takes its decorator from here."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from numba import njit

from puffin_ann.settings import configure_numba

configure_numba()  # before any kernel is defined, so that it is looked for where it is kept

FAST = frozenset({"reassoc", "contract", "nsz"})
"""Sums may be reordered, so that they vectorise; infinities keep their meaning."""

R = TypeVar("R")


class Decorator(Protocol):
    """Turns a function into a compiled one of the same type."""

    def __call__(self, function: Callable[..., R], /) -> Callable[..., R]:
        """Return the compiled function."""


def kernel(*, fastmath: frozenset[str] = frozenset(), allocates: bool = False) -> Decorator:
    """Return the decorator of a kernel: compiled once, kept, run without Python's lock.

    A kernel counts no references to arrays: its caller holds what it is given. So it can neither
    make an array nor return one. Otherwise Numba counts wherever an array comes out of a tuple or
    goes into a call, by atomic instructions in the innermost loops: a search of HNSW took twice as
    long, one over full vectors three times.

    Args:
        fastmath: what floating-point arithmetic may do against IEEE 754, in LLVM's words.
        allocates: the kernel makes arrays, or returns one: references are counted.
    """
    uncounted: dict[str, Any] = {"_nrt": allocates}  # not in Numba's annotations, but in its tests
    decorator: Decorator = njit(
        cache=True, nogil=True, fastmath=set(fastmath) or False, **uncounted
    )
    return decorator


def inlined(function: Callable[..., R]) -> Callable[..., R]:
    """Decorate a function that becomes a part of the kernels which call it."""
    compiled: Callable[..., R] = njit(inline="always")(function)
    return compiled
