"""Kernels count no references to the arrays they are given, which would slow their loops."""

import inspect
import pkgutil
from importlib import import_module

import numpy as np
import pytest
from numba.core.errors import NumbaError

from puffin_ann.ann.graph import kernels_beam
from puffin_ann.ann.hnsw import kernels as kernels_hnsw
from puffin_ann.ann.vamana.packed import kernels_pool
from puffin_ann.ann.vamana.packed import kernels_walk as kernels_packed
from puffin_ann.kernel_cache import numba_cache
from puffin_ann.numba_kernels import kernel


def test_a_kernel_that_makes_an_array_has_to_say_so():
    def make(count):
        return np.zeros(count, np.int64).sum()

    def make_unsaid(count):
        return np.zeros(count, np.int64).sum()

    assert kernel(allocates=True)(make)(3) == 0
    with pytest.raises(NumbaError, match="array passed into the function"):
        kernel()(make_unsaid)(3)


def all_kernels():
    """Return the kernels of all modules by their names."""
    for package in ("ann", "blobs"):
        path = import_module(f"puffin_ann.{package}").__path__
        for module in pkgutil.walk_packages(path, f"puffin_ann.{package}."):
            import_module(module.name)
    return {f"{kernel.__module__}.{kernel.__name__}": kernel for kernel in numba_cache.kernels}


def counts(compiled):
    return compiled.targetoptions["_nrt"]


def test_kernels_that_count_no_references_return_no_array():
    found = all_kernels()
    assert len(found) > 60
    returned = {
        name: inspect.signature(one.py_func).return_annotation for name, one in found.items()
    }
    assert [
        name
        for name, type in returned.items()
        if "NDArray" in str(type) and not counts(found[name])
    ] == []


def test_no_search_counts_references_where_it_goes_from_row_to_row():
    loops = [
        kernels_beam.beam,
        kernels_beam.find_unseen,
        kernels_hnsw.beam,
        kernels_hnsw.descend,
        kernels_packed.walk,
        kernels_pool.enter,
        kernels_pool.merge,
    ]
    assert [loop.__name__ for loop in loops if counts(loop)] == []
