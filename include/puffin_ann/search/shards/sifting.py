"""Sift near rows for those that satisfy a condition, and search for queries left short of them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from puffin_ann.search.conditions.sifted import Sifted
from puffin_ann.search.conditions.ways import TRIED_SHARE, tried
from puffin_ann.search.merge import Source

_ALL_OF_ONE = np.ones(1, np.bool_)

Sift = Callable[[NDArray[np.bool_], float], tuple[list[Source], NDArray[np.bool_]]]
"""(queries to sift, (q,) bool, and the share of the rows near them to expect that may be answered)
-> sources of all queries, and which have enough, (q,) bool."""


def sift_first(
    queries: NDArray[np.float32],
    sift: Sift,
    pays: Callable[[bool], bool],
    search: Callable[[NDArray[np.float32]], list[Source]],
    sifted: Sifted,
    share: float,
) -> list[Source]:
    """Return the answers of each query, sifted where that pays and gives enough, else searched for.

    Args:
        queries: (q, d) float32.
        sift: see `Sift`.
        pays: tells whether to sift is expected to cost least; asked again after a few queries, and
            told whether any of those was left short.
        search: returns the answers of some queries otherwise.
        sifted: is told how the queries fared.
        share: of all rows that may be answered.
    """
    is_paying = pays(False)
    # A few, as if nothing were known of the rows near them: others may ask now.
    turns = 0 if is_paying else sifted.take_turn(len(queries))
    if not (is_paying or turns):
        return search(queries)
    if len(queries) == 1:  # most of a query alone is what is done beside the search
        found, enough = sift(_ALL_OF_ONE, _expect(sifted, share, is_paying=is_paying))
        sifted.add(enough)
        return found if enough[0] else search(queries)
    sources: list[Source] = []
    left = np.ones(len(queries), np.bool_)
    first = tried(len(queries)) if is_paying else turns
    for part in (slice(first), slice(first, None)):
        if not left[part].any():
            break
        if part.start and not (is_paying := pays(bool(left[: part.start].any()))):
            break
        expected = _expect(sifted, share, is_paying=is_paying)
        asked = np.zeros(len(queries), np.bool_)
        asked[part] = True
        found, enough = sift(asked, expected)
        sifted.add(enough[asked])
        if enough.all() and asked.all():
            return found
        enough &= asked
        sources += [_only(source, enough) for source in found]
        left &= ~enough
    if left.all():
        return search(queries)
    if left.any():
        sources += [_spread(source, left) for source in search(queries[left])]
    return sources


def _expect(sifted: Sifted, share: float, *, is_paying: bool) -> float:
    """Return the share of the rows near queries to expect, and note it where to sift pays."""
    if not is_paying:
        return max(share, TRIED_SHARE)
    sifted.pay()
    return sifted.near(share)


def _only(source: Source, kept: NDArray[np.bool_]) -> Source:
    """Return a source without its answers to the other queries; (q,) bool."""
    ordinals = np.where(kept[:, None], source.ordinals, -1)
    distances = np.where(kept[:, None], source.distances, np.float32(np.inf))
    return source._replace(ordinals=ordinals, distances=distances)


def _spread(source: Source, asked: NDArray[np.bool_]) -> Source:
    """Return a source of the queries asked as one of all, (q,) bool: nothing for the others."""
    shape = len(asked), source.ordinals.shape[1]
    ordinals, distances = np.full(shape, -1, np.int64), np.full(shape, np.inf, np.float32)
    ordinals[asked], distances[asked] = source.ordinals, source.distances
    return source._replace(ordinals=ordinals, distances=distances)
