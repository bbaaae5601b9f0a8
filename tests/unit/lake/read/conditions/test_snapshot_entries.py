"""Entries that are kept are counted by what they take in memory."""

from types import SimpleNamespace

from puffin_ann.lake.read.conditions.snapshot_entries import _size
from puffin_ann.lake.read.files.manifests import Statistics


def size_of(lower, upper):
    told = Statistics({1: 10, 2: 10}, {1: 0}, None, lower, upper)
    return _size(SimpleNamespace(statistics=told))


def test_long_bounds_count_with_their_length():
    short = size_of({1: b"a", 2: b"b"}, {1: b"c"})
    assert size_of({1: b"a" * 100_001, 2: b"b"}, {1: b"c"}) == short + 100_000
    assert size_of({1: b"a", 2: b"b"}, {1: b"c" * 50_001}) == short + 50_000
    assert size_of({1: b"a"}, {1: b"c"}) < short
    assert size_of(None, None) < size_of({}, {1: b"c"})
    assert _size(SimpleNamespace(statistics=None)) < size_of(None, None)
