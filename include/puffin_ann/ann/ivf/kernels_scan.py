"""Which lists a query looks through, and the scan of their codes, compiled.

A query alone goes from list to list. Of many queries the nearest lists of each are scanned so, and
the others list by list, for all queries that look through it: its codes are asked of memory once.
The candidates of a query do not depend on which of both is done.
"""

import numpy as np

from puffin_ann.ann.ivf.kernels_lists import (
    TILE,
    all_in_order,
    has_rows,
    key_of,
    leave_out_empty,
    nearest_first,
    score_of,
)
from puffin_ann.ann.simd.fastscan import (
    BLOCK,
    GROUP,
    GROUP_BYTES,
    block_sums,
    block_sums_of_two,
    quantise_tables,
)
from puffin_ann.ann.simd.kernels_order import select
from puffin_ann.ann.simd.vectors import (
    F32X16,
    fill_of,
    less_mask,
    load_of,
    lowest_bit,
    multiply_add,
    prefetch,
    store_of,
    sum_of,
)
from puffin_ann.numba_kernels import inlined, kernel

NEAREST = 1e-6
"""Of a query's squared length: no list counts as nearer, which rounding could say."""
FAR = np.float32(3e38)
"""Scores from here on are not looked at: there is no row, or numbers were too large."""
ROUNDED = np.float32(2.0**-22)
"""By how much of either a sum of two numbers can be off, and a difference of it and one of them."""
LEAST = np.float32(1e-37)
"""And where both are 0, or so small that this share of them is."""
SHARED = 2
"""So many queries look through each list on average, where lists are scanned for all at once."""
FIRST = 16
"""One in so many of a query's lists is scanned before: its rows tell which others are too far."""
NONE = np.int32(-1)

U64, I32, I64, F32 = np.uint64, np.int32, np.int64, np.float32
_LOW = np.uint64(0xFFFFFFFF)
_LINE = np.uint64(16)
_AHEAD = np.uint64(1024)

_load, _store, _fill = load_of(F32X16), store_of(F32X16), fill_of(F32X16)


@inlined
def _bound(limit, base):  # type: ignore[no-untyped-def]
    """Return what scores without the base are below, if they are not above the limit with it."""
    return (limit - base) + (ROUNDED * (abs(limit) + abs(base)) + LEAST)


@inlined
def _admit(ivf, block, s0, s1, base, scale, limit, excluded, keep, sums, found, count):  # type: ignore[no-untyped-def]
    """Add the rows of a block that are under the limit to `found`; return (count, limit)."""
    at = block * U64(BLOCK)
    scales, bound = _fill(scale), _fill(_bound(limit, base))
    s0 = multiply_add(s0, scales, _load(ivf.biases, at))
    s1 = multiply_add(s1, scales, _load(ivf.biases, at + _LINE))
    mask = less_mask(s0, bound) | (less_mask(s1, bound) << _LINE)
    if mask != U64(0):
        _store(sums, U64(0), s0)
        _store(sums, _LINE, s1)
        while mask != U64(0):
            j = lowest_bit(mask)
            mask &= mask - U64(1)
            row = ivf.ordinals[at + j]
            if len(excluded) == 0 or excluded[row] == 0:
                found[count] = key_of(base + sums[j], row)
                count += 1
        if count > len(found) - BLOCK:
            select(found, count, keep)
            count = keep
            greatest = found[0]
            for j in range(U64(keep)):
                greatest = max(greatest, found[j])
            limit = score_of(greatest)
    return count, limit


@inlined
def _scan_list(ivf, name, tables, base, scale, limit, excluded, keep, sums, found, count):  # type: ignore[no-untyped-def]
    """Add the rows of a list that are under the limit to `found`; return (count, limit)."""
    groups = (ivf.words.shape[0] + GROUP - 1) // GROUP
    size = U64(groups) * U64(GROUP_BYTES)
    for block in range(U64(ivf.starts[name]), U64(ivf.starts[name + U64(1)])):
        s0, s1 = block_sums(ivf.codes, block * size, tables, groups)
        count, limit = _admit(
            ivf, block, s0, s1, base, scale, limit, excluded, keep, sums, found, count
        )
    return count, limit


@inlined
def _relative(query, at, centroids, name, dimension, moved):  # type: ignore[no-untyped-def]
    """Write a query relative to a centroid, and return their squared distance."""
    tile, lane = U64(name) // U64(TILE), U64(name) % U64(TILE)
    place = tile * (U64(dimension) + U64(1)) * U64(TILE) + lane
    total = F32(0)
    square = F32(0)
    for z in range(U64(dimension)):
        value = centroids[place + z * U64(TILE)]
        moved[z] = query[U64(at) + z] - value
        total += moved[z] * moved[z]
        square += value * value
    # For ip a centroid has one dimension more than a query.
    return total + max(F32(0), centroids[place + U64(dimension) * U64(TILE)] - square)


@inlined
def sorted_lists(effort, lists):  # type: ignore[no-untyped-def]
    """Return how many of the nearest lists are wanted in their order."""
    return effort.probes if effort.reach == np.inf else min(2 * effort.probes, lists)


@inlined
def _square(query, at, dimension):  # type: ignore[no-untyped-def]
    """Return the squared length of a query, in the same order on every machine."""
    lanes = _fill(F32(0))
    whole = U64(dimension) & ~U64(15)
    for z in range(U64(0), whole, _LINE):
        line = _load(query, U64(at) + z)
        lanes = multiply_add(line, line, lanes)
    square = sum_of(lanes)
    for z in range(whole, U64(dimension)):
        square += query[U64(at) + z] * query[U64(at) + z]
    return square


@inlined
def _within_reach(effort, query, at, dimension, keys, most):  # type: ignore[no-untyped-def]
    """Return how many of the nearest lists to look through, `most` of which are in order."""
    if effort.reach == np.inf:
        return effort.probes
    square = _square(query, at, dimension)
    first = max(score_of(keys[0]) + square, F32(NEAREST) * square)
    border = F32(effort.reach) * first
    border *= border
    count = (effort.probes + 3) // 4
    while count < most:
        further = score_of(keys[count]) + square - first
        if further * further * F32(count + 1) > border:
            break
        count += 1
    return count


@kernel()
def _scan_in_turn(ivf, at, excluded, scratch, slot, keys, begin, until, there):  # type: ignore[no-untyped-def]
    """Scan a query's lists from `begin` to `until`, and on while too few rows are found.

    Args:
        ivf: the lists.
        at: where the query begins in `scratch.prepared`.
        excluded: see `kernels.search`.
        scratch: see `kernels.Scratch`; its `held` and `limits` are written.
        slot: the query's place in it.
        keys: lists, from the nearest on.
        begin: the first of them.
        until: the first to be left out, if enough rows are found.
        there: how many there are.
    """
    query, centroids, dimension = scratch.prepared, ivf.centroids, len(ivf.origin)
    count, width = ivf.words.shape[0], ivf.words.shape[1]
    groups = (count + GROUP - 1) // GROUP
    size = U64(groups) * U64(GROUP_BYTES)
    words, offsets, codes, starts = ivf.words.reshape(-1), ivf.offsets, ivf.codes, ivf.starts
    tables, found, sums = scratch.tables[slot], scratch.found[slot], scratch.sums
    scale, shift = scratch.scales[slot], scratch.shifts[slot]
    held, limit, refined = scratch.held[slot], scratch.limits[slot], scratch.refined[slot]
    done = begin
    while done < there and (done < until or held < refined):
        name = keys[done] & _LOW
        base = score_of(keys[done]) + shift
        done += 1
        if done < min(until, there):
            ahead = U64(starts[keys[done] & _LOW]) * size
            for z in range(U64(0), _AHEAD, U64(64)):
                prefetch(codes, ahead + z)
        if ivf.relative:
            moved = scratch.moved
            base = _relative(query, at, centroids, name, dimension, moved)
            scale, less = quantise_tables(
                moved, words, width, offsets, count, scratch.floats, tables
            )
            base += less
        held, limit = _scan_list(
            ivf, name, tables, base, scale, limit, excluded, refined, sums, found, held
        )
    scratch.held[slot], scratch.limits[slot] = held, limit


@inlined
def _scan_of_one(ivf, excluded, scratch, name, slot, score):  # type: ignore[no-untyped-def]
    """Scan a list for a query."""
    scratch.held[slot], scratch.limits[slot] = _scan_list(
        ivf, name, scratch.tables[slot], score + scratch.shifts[slot], scratch.scales[slot],
        scratch.limits[slot], excluded, scratch.refined[slot], scratch.sums, scratch.found[slot],
        scratch.held[slot],
    )  # fmt: skip


@inlined
def _scan_of_two(ivf, excluded, scratch, name, one, score_1, two, score_2):  # type: ignore[no-untyped-def]
    """Scan a list for two queries, block by block: what codes are taken apart by is done once."""
    groups = (ivf.words.shape[0] + GROUP - 1) // GROUP
    size, sums = U64(groups) * U64(GROUP_BYTES), scratch.sums
    tables_1, found_1 = scratch.tables[one], scratch.found[one]
    tables_2, found_2 = scratch.tables[two], scratch.found[two]
    scale_1, base_1 = scratch.scales[one], score_1 + scratch.shifts[one]
    scale_2, base_2 = scratch.scales[two], score_2 + scratch.shifts[two]
    held_1, limit_1, refined_1 = scratch.held[one], scratch.limits[one], scratch.refined[one]
    held_2, limit_2, refined_2 = scratch.held[two], scratch.limits[two], scratch.refined[two]
    for block in range(U64(ivf.starts[name]), U64(ivf.starts[name + U64(1)])):
        s0, s1, t0, t1 = block_sums_of_two(ivf.codes, block * size, tables_1, tables_2, groups)
        held_1, limit_1 = _admit(
            ivf, block, s0, s1, base_1, scale_1, limit_1, excluded, refined_1, sums, found_1, held_1
        )
        held_2, limit_2 = _admit(
            ivf, block, t0, t1, base_2, scale_2, limit_2, excluded, refined_2, sums, found_2, held_2
        )
    scratch.held[one], scratch.limits[one] = held_1, limit_1
    scratch.held[two], scratch.limits[two] = held_2, limit_2


@kernel()
def plan(ivf, at, effort, excluded, scratch, slot):  # type: ignore[no-untyped-def]
    """Choose the lists of a query, and make its tables; return how many lists are to be scanned.

    Of a query whose nearest list has no row that may be answered, they are scanned at once.
    """
    scores, keys, query = scratch.scores, scratch.keys, scratch.prepared
    lists, most = ivf.lists, sorted_lists(effort, ivf.lists)
    dimension, count, width = len(ivf.origin), ivf.words.shape[0], ivf.words.shape[1]
    scratch.held[slot], scratch.limits[slot] = 0, FAR
    scratch.refined[slot] = effort.refined
    if not ivf.relative:
        whole = query[at : at + dimension + width]
        scratch.scales[slot], scratch.shifts[slot] = quantise_tables(
            whole, ivf.words.reshape(-1), width, ivf.offsets, count, scratch.floats,
            scratch.tables[slot],
        )  # fmt: skip
    tiles = (lists + TILE - 1) // TILE
    scores_at = slot * tiles * TILE
    nearest_first(scores, scores_at, tiles, lists, most, scratch)
    if has_rows(ivf, keys[0] & _LOW, excluded):
        probes = _within_reach(effort, query, at, dimension, keys, most)
        nearest = scratch.nearest[slot]
        for j in range(U64(probes)):
            nearest[j] = keys[j]
        scratch.probes[slot] = probes
        return probes
    scratch.probes[slot] = 0
    all_in_order(scores, scores_at, lists, keys)
    there = leave_out_empty(ivf, keys, excluded)
    scratch.refined[slot] = effort.among * effort.refined
    until = effort.among * effort.probes
    _scan_in_turn(ivf, at, excluded, scratch, slot, keys, 0, until, there)
    return 0


@kernel()
def scan(ivf, stride, excluded, scratch, together, planned):  # type: ignore[no-untyped-def]
    """Scan the lists that were planned for some queries.

    Args:
        ivf: the lists.
        stride: numbers of a query in `scratch.prepared`.
        excluded: see `kernels.search`.
        scratch: see `kernels.Scratch`.
        together: how many queries there are.
        planned: how many lists of all of them, what `plan` returned.
    """
    probes, nearest, heads, links = scratch.probes, scratch.nearest, scratch.heads, scratch.links
    if ivf.relative or together == 1 or planned < SHARED * ivf.lists:
        for i in range(together):
            _scan_in_turn(
                ivf, i * stride, excluded, scratch, i, nearest[i], 0, probes[i], probes[i]
            )
        return
    most = nearest.shape[1]
    for name in range(ivf.lists):
        heads[name] = NONE
    for slot in range(together - 1, -1, -1):
        first = (probes[slot] + FIRST - 1) // FIRST
        _scan_in_turn(ivf, slot * stride, excluded, scratch, slot, nearest[slot], 0, first, first)
        for j in range(first, probes[slot]):
            name = nearest[slot, j] & _LOW
            links[slot, j] = heads[name]
            heads[name] = I32(slot * most + j)
    for name in range(U64(ivf.lists)):
        place = heads[name]
        while place != NONE:
            one, j = place // most, place % most
            score_1 = score_of(nearest[one, j])
            place = links[one, j]
            if place == NONE:
                _scan_of_one(ivf, excluded, scratch, name, one, score_1)
                break
            two, j = place // most, place % most
            score_2 = score_of(nearest[two, j])
            place = links[two, j]
            _scan_of_two(ivf, excluded, scratch, name, one, score_1, two, score_2)


@inlined
def finish(ivf, at, excluded, scratch, slot):  # type: ignore[no-untyped-def]
    """Leave the best rows of the lists of a query in `found`; return how many.

    Where too few rows were found, further lists are scanned.
    """
    lists, probes, refined = ivf.lists, scratch.probes[slot], scratch.refined[slot]
    if scratch.held[slot] < refined and 0 < probes < lists:
        tiles = (lists + TILE - 1) // TILE
        all_in_order(scratch.scores, slot * tiles * TILE, lists, scratch.keys)
        _scan_in_turn(ivf, at, excluded, scratch, slot, scratch.keys, probes, probes, lists)
    held = scratch.held[slot]
    if held > refined:
        select(scratch.found[slot], held, refined)
        held = refined
    return held
