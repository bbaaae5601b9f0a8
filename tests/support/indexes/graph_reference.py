"""Reference implementations, in plain Python, of the loops that build and search graphs."""

import numpy as np

from puffin_ann.ann.graph.arguments import Space
from puffin_ann.ann.vamana.bulk import kernels_bulk_build

WIDTH = 16


NONE = kernels_bulk_build.NONE


def whole_numbers(n, seed, spread=6):
    generator = np.random.default_rng(seed)
    return generator.integers(-spread, spread, (n, WIDTH)).astype(np.float32)


def squared(one, other):
    return float(((one.astype(np.float64) - other) ** 2).sum())


def pruned(space, pairs, most, alpha):
    """RobustPrune in two passes, as the module describes it."""
    chosen, left = [], []
    for distance, row in pairs:
        if len(chosen) == most:
            break
        between = [squared(space[row], space[neighbour]) for neighbour in chosen]
        if not any(length <= distance for length in between):
            chosen.append(row)
        elif not any(np.float32(alpha) * np.float32(length) <= distance for length in between):
            left.append((distance, row))
    for distance, row in left if alpha > 1 else []:
        if len(chosen) == most:
            break
        if not any(
            np.float32(alpha) * np.float32(squared(space[row], space[neighbour])) <= distance
            for neighbour in chosen
        ):
            chosen.append(row)
    return chosen


def best_first(space, lists, entry, query, keep, deleted=(), most=1):
    """Beam search: expand the nearest candidate not expanded yet, keep the best, until none is.

    Of the deleted rows the nearest are passed through, as many as `most`; and, once enough live
    rows are kept, after those and among the nearest third, if a live row of that leads there.
    """
    pools, seen, trail, done = {False: [], True: []}, {entry}, [], set()
    pools[is_deleted(deleted, entry)].append((squared(space[entry], query), entry))
    while True:
        is_full = len(pools[False]) == keep
        open_ones = still_open(pools, done, is_full)
        if not open_ones:
            return pools[False], trail
        following = open_ones[0]
        done.add(following[1])
        trail += [following] * (not is_deleted(deleted, following[1]))
        leads = leads_to_deleted(pools, following, is_full)
        for row in lists[following[1]]:
            if row not in seen:
                seen.add(row)
                if leads or not is_deleted(deleted, row):
                    pools[is_deleted(deleted, row)].append((squared(space[row], query), row))
        pools = {False: sorted(pools[False])[:keep], True: sorted(pools[True])[:most]}


def still_open(pools, done, is_full):
    """Candidates to expand, in order: with a full pool live rows, then near deleted ones."""
    live, deleted = (
        [pool for pool in pools[kind] if pool[1] not in done] for kind in (False, True)
    )
    if not is_full:
        return sorted(live + deleted)
    nearest_third = pools[False][len(pools[False]) // 3]
    return live or [entry for entry in deleted if entry < nearest_third]


def leads_to_deleted(pools, following, is_full):
    """Whether deleted neighbours of an expanded row are measured: where none is near, of all."""
    if not is_full:
        return True
    live, deleted = pools[False], pools[True]
    third = len(live) // 3
    none_near = following in live and not (deleted and deleted[0] < live[third])
    return following in live[:third] or none_near


def space_of(rows):
    return Space(rows.reshape(-1), rows.shape[1])


def is_deleted(deleted, row):
    return len(deleted) > 0 and bool(deleted[row])
