"""Choose how wide to search, and how many cells to probe, by queries set apart for it."""

from collections.abc import Iterator
from itertools import chain

from puffin_ann.declaration import EXACT
from puffin_ann.lifecycle.evaluate.measure import RecallMeter
from puffin_ann.search.index import Index

WIDTHS = (
    *(16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256),
    *(384, 512, 768, 1024, 1536, 2048),
)


FEW_QUERIES, UNTUNED_WIDTH = 50, 256
"""With fewer tuning queries than this, differences between searches cannot be told from luck."""


def choose_widths(
    index: Index, meter: RecallMeter, *, target: float, cells: int
) -> tuple[int, int]:
    """Find the fastest search that reaches the target on the tuning queries, with some to spare.

    A search must exceed the target by a quarter of the rest with the low end of its interval, so
    that what passes here by luck is rare, and users' queries, which are no rows of the table, find
    as much. More cells need less width: of all pairs that are just enough the fastest is
    taken, as measured. With few queries nothing is saved: every cell is probed. So it is with
    `exact`, which promises every row, near the rows of the table or not.

    Returns:
        Search width and cells to probe; the widest search if none reaches the target.
    """
    if not index.version.routing.cells.count:
        return WIDTHS[0], 0  # files are left out by proven bounds only: nothing to choose
    if index.version.routing.algorithm == EXACT:
        return WIDTHS[0], cells
    if len(meter.queries) < FEW_QUERIES:
        return max(UNTUNED_WIDTH, 4 * meter.k), cells
    pairs = _pairs(index, meter, target + (1.0 - target) / 4, cells)
    if not pairs:
        return WIDTHS[-1], cells
    return meter.fastest(index, pairs)


def _pairs(index: Index, meter: RecallMeter, wanted: float, cells: int) -> list[tuple[int, int]]:
    """Return widths with the fewest cells by which each of them finds enough."""

    def is_enough(place: int, probe: int) -> bool:
        width = WIDTHS[place]
        return meter.measure(index, width=width, probe_partitions=probe).low >= wanted

    pairs: list[tuple[int, int]] = []
    place = len(WIDTHS) - 1
    ladder = [cells] if len(index.version.routing.shards) == 1 else _probes(cells)
    for probe in ladder:
        if not is_enough(place, probe):
            continue
        while place and is_enough(place - 1, probe):
            place -= 1
        if not pairs or pairs[-1][0] != WIDTHS[place]:
            pairs.append((WIDTHS[place], probe))
    return pairs


def _probes(cells: int) -> Iterator[int]:
    ladder = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
    return (tried for tried in chain(ladder, [cells]) if tried <= cells)
