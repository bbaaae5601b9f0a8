"""Compute row identities, by which a row is known again when it is rewritten into another file.

In: vectors and keys. Out: a 128-bit hash of the vector's float32 bits and, where an index declares
one, the key. Builds and refreshes use it for tables of every version. Tables of version 3 have
`_row_id` and `_last_updated_sequence_number` as well, which the format allows as an identity (1 in
docs/format.md). No index is made so; a refresh finds by them, in `row_lineage`, which rows it need
not hash again.

The hash is a multilinear one, four times over. A row is a sequence of 32-bit words w[0..n):

- the dimension d;
- the d words of the vector: the IEEE 754 bits of its float32 elements, in order;
- if the index has a key column: 0 for a null key, else 1; the length of the key in bytes; and
  the key's bytes, one word each.

Lane k (0..3) is the upper half of `m[k][0] + sum(m[k][i + 1] * w[i])` modulo 2^64. The identity is
two 64-bit numbers, lane 0 * 2^32 + lane 1 and lane 2 * 2^32 + lane 3. The multipliers are fixed:
splitmix64 of the seed 0x7075666660616E6E, taken lane by lane, with vector and key having sequences
of their own so that neither depends on the other's length (see `_multipliers`).

Multilinear hashing is strongly universal: two different rows agree with a chance of 2^-32 per
lane, 2^-128 in all, over the choice of multipliers (Lemire and Kaser, "Strongly universal string
hashing is fast", 2014). It guards against accidents, not against somebody who knows the constants.
"""

from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from puffin_ann.errors import UnsupportedColumnError

LANES: Final = 4
SEED: Final = 0x7075666660616E6E

_VECTOR, _KEY = 0, 1
_BLOCK_BYTES = 32 << 20


def hash_rows(
    matrix: NDArray[np.float32], keys: pa.Array | pa.ChunkedArray | None = None
) -> NDArray[np.uint64]:
    """Return the identity of each row: (n, 2) uint64.

    Args:
        matrix: (n, d) float32, the vectors as stored.
        keys: n values of the key column, or None if the index has none. Integers, dates, times and
            timestamps count as 8 bytes little-endian, floats as those of a double, so that
            widening a column's type changes no identity; strings and binaries as their bytes, and
            anything else as its text.

    Raises:
        UnsupportedColumnError: the key column is nested.
    """
    sums = _hash_vectors(np.ascontiguousarray(matrix, dtype=np.float32))
    if keys is not None:
        if len(keys) != len(matrix):
            raise ValueError(f"{len(matrix)} vectors, {len(keys)} keys")
        sums += _hash_keys(keys)
    lanes = sums >> np.uint64(32)
    high = np.uint64(32)
    return np.stack([lanes[:, 0] << high | lanes[:, 1], lanes[:, 2] << high | lanes[:, 3]], axis=1)


def match_identities(removed: NDArray[np.uint64], added: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Find the rows that reappear: pair rows of equal identity, each row at most once.

    Identities are multisets, since vectors may be equal: of three equal rows that are gone and two
    that have come, two are paired, in the order they are given in.

    Args:
        removed: (n, 2) uint64, identities of rows that are no longer where they were.
        added: (m, 2) uint64, identities of rows that are where none was.

    Returns:
        (n,) int64, for each row of `removed` its place in `added`, or -1 where it does not
        reappear.
    """
    places = np.full(len(removed), -1, dtype=np.int64)
    if not len(added):
        return places
    # By columns: those of both are gathered and compared as wholes several times.
    firsts, seconds = (np.ascontiguousarray(half) for half in removed.T)
    their_firsts, their_seconds = (np.ascontiguousarray(half) for half in added.T)
    by_removed, by_added = np.argsort(firsts), np.argsort(their_firsts)
    ordered, theirs_ordered = firsts[by_removed], their_firsts[by_added]
    at = np.searchsorted(theirs_ordered, ordered).clip(max=len(added) - 1)
    partners = by_added[at]
    alone = theirs_ordered[at] == ordered
    alone &= their_seconds[partners] == seconds[by_removed]
    shared = _repeated(ordered, theirs_ordered)
    if len(shared):
        alone &= ~np.isin(ordered, shared)
        # Rows that share a first half with others of their side are paired by sorting both halves.
        some = np.flatnonzero(np.isin(firsts, shared))
        theirs = np.flatnonzero(np.isin(their_firsts, shared))
        paired = _matched_multisets(removed[some], added[theirs])
        places[some[paired >= 0]] = theirs[paired[paired >= 0]]
    places[by_removed[alone]] = partners[alone]
    return places


def _repeated(*sides: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return values that one of the sorted arrays holds more than once."""
    return np.unique(np.concatenate([side[1:][side[1:] == side[:-1]] for side in sides]))


def _matched_multisets(removed: NDArray[np.uint64], added: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Do what `match_identities` does, whatever repeats."""
    everything = np.concatenate([removed, added])
    # By identity; equal ones with those gone first, each in the order given (a stable sort).
    order = np.lexsort((everything[:, 1], everything[:, 0]))
    ordered = everything[order]
    starts = np.ones(len(order), dtype=np.bool_)
    starts[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    group = np.cumsum(starts) - 1
    first = np.flatnonzero(starts)
    is_removed = order < len(removed)
    counts = np.bincount(group[is_removed], minlength=len(first))
    sizes = np.diff(np.append(first, len(order)))
    rank = np.arange(len(order)) - first[group]
    paired = is_removed & (rank < (sizes - counts)[group])
    partner = first[group] + counts[group] + rank
    places = np.full(len(removed), -1, dtype=np.int64)
    places[order[paired]] = order[partner[paired]] - len(removed)
    return places


def _hash_vectors(matrix: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return m[k][0] + m[k][1] * d + the sum over the vector's words: (n, 4) uint64."""
    from puffin_ann.lake.read.identity.kernels_identity import (
        add_words,  # whoever hashes no row waits less
    )

    rows, dimension = matrix.shape
    factors = _multipliers(_VECTOR, dimension + 2)
    start = factors[:, 0] + factors[:, 1] * np.uint64(dimension)
    sums = np.empty((rows, LANES), dtype=np.uint64)
    words = matrix.view(np.uint32)
    words.flags.writeable = False
    add_words(words, np.ascontiguousarray(factors[:, 2:]), start, sums)
    return sums


def _hash_keys(keys: pa.Array | pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return the sum over the words of each key: (n, 4) uint64."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    valid = keys.is_valid().to_numpy(zero_copy_only=False)
    data, offsets = _key_bytes(keys)
    lengths = np.where(valid, np.diff(offsets), 0)
    factors = _multipliers(_KEY, int(lengths.max(initial=0)) + 2)
    sums = np.outer(valid.astype(np.uint64), factors[:, 0])
    sums += np.outer(lengths.astype(np.uint64), factors[:, 1])
    for first, last in _key_blocks(offsets):
        _add_bytes(sums[first:last], data, offsets[first : last + 1], lengths[first:last], factors)
    return sums


def _add_bytes(
    sums: NDArray[np.uint64],
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    factors: NDArray[np.uint64],
) -> None:
    """Add the words of the keys' bytes to their sums, in place."""
    some = np.flatnonzero(lengths)
    if not len(some):
        return
    sizes = lengths[some]
    starts = np.cumsum(sizes) - sizes
    # Position of each byte in its key: a running count that starts over at every key.
    within = np.arange(int(sizes.sum())) - np.repeat(starts, sizes)
    words = data[within + np.repeat(offsets[some], sizes)].astype(np.uint64)
    for lane in range(LANES):
        sums[some, lane] += np.add.reduceat(words * factors[lane, 2:][within], starts)


def _key_blocks(offsets: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Cut keys into ranges of about `_BLOCK_BYTES` / 8 bytes each."""
    rows = len(offsets) - 1
    targets = np.arange(offsets[0], offsets[-1], _BLOCK_BYTES // 8)
    cuts = np.unique([0, *np.searchsorted(offsets, targets, side="left").tolist(), rows])
    return [(int(a), int(b)) for a, b in pairwise(cuts)]


def _key_bytes(keys: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the keys' bytes end to end, and where each begins: (n + 1,) int64."""
    if pa.types.is_nested(keys.type):
        raise UnsupportedColumnError(f"a key column cannot be of type {keys.type}")
    fixed = _as_8_bytes(keys)
    if fixed is not None:
        offsets = np.arange(len(keys) + 1, dtype=np.int64) * 8
        return np.ascontiguousarray(fixed).view(np.uint8), offsets
    binary = _as_binary(keys)
    width = binary.buffers()[1]
    offsets = np.frombuffer(width, dtype=np.int64)[binary.offset :][: len(keys) + 1]
    buffer = binary.buffers()[2]
    data = np.frombuffer(buffer, dtype=np.uint8) if buffer is not None else np.zeros(0, np.uint8)
    return data, offsets


def _as_8_bytes(keys: pa.Array) -> NDArray[np.int64] | NDArray[np.float64] | None:
    kind = keys.type
    if pa.types.is_floating(kind):
        return np.asarray(pc.fill_null(keys.cast(pa.float64()), 0.0).to_numpy(), dtype="<f8")
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        keys = keys.cast(pa.int32())
    elif pa.types.is_temporal(kind) or pa.types.is_boolean(kind):
        keys = keys.cast(pa.int64())
    elif not pa.types.is_integer(kind):
        return None
    return np.asarray(pc.fill_null(keys.cast(pa.int64()), 0).to_numpy(), dtype="<i8")


def _as_binary(keys: pa.Array) -> pa.Array:
    kind = keys.type
    if pa.types.is_dictionary(kind):
        return _as_binary(keys.cast(kind.value_type))
    if isinstance(keys, pa.ExtensionArray):
        return _as_binary(keys.storage)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind):
        return keys.cast(pa.large_binary())
    return keys.cast(pa.large_string()).cast(pa.large_binary())


@lru_cache(maxsize=32)
def _multipliers(part: int, count: int) -> NDArray[np.uint64]:
    """Return (4, count) uint64: lane k's multipliers for a part of the row (0 vector, 1 key).

    Multiplier i of lane k is splitmix64(SEED + (part * 4 + k) * 2^56 + i), all modulo 2^64, where
    splitmix64 is the generator's output function after one step of its counter.
    """
    lanes = np.arange(part * LANES, (part + 1) * LANES, dtype=np.uint64)[:, None]
    start = (lanes << np.uint64(56)) + np.uint64(SEED + 1)
    state = np.add(start, np.arange(count, dtype=np.uint64), dtype=np.uint64)
    state *= np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state ^= state >> np.uint64(shift)
        state *= np.uint64(factor)
    state ^= state >> np.uint64(31)
    state.setflags(write=False)
    multipliers: NDArray[np.uint64] = state
    return multipliers
