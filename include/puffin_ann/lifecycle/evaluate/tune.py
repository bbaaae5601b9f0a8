"""Choose how wide to search, and how many cells to probe, by queries set apart for it."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from puffin_ann.declaration import EXACT
from puffin_ann.lifecycle.evaluate.effort import Efforts
from puffin_ann.lifecycle.evaluate.entered_shards import EnteredShards
from puffin_ann.lifecycle.evaluate.measure import FEW_QUERIES, Measure, RecallMeter
from puffin_ann.search.index import Index

WIDTHS = (
    *(16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256),
    *(384, 512, 768, 1024, 1536, 2048),
)

UNTUNED_WIDTH = 256
"""Where too few queries choose."""


def choose_widths(
    index: Index, meter: RecallMeter, *, target: float, cells: int
) -> tuple[int, int]:
    """Find the cheapest search that reaches the target on the tuning queries, with some to spare.

    A search must exceed the target by a quarter of the rest with the low end of its interval, so
    that what passes here by luck is rare, and users' queries, which are no rows of the table, find
    as much. More cells need less width; see `_cheapest`. With few queries nothing is saved: every
    cell is probed. So it is with `exact`, which promises every row, near the rows of the table or
    not.

    Returns:
        Search width and cells to probe; the widest search if none reaches the target.
    """
    if not index.version.routing.cells.count:
        return WIDTHS[0], 0  # files are left out by proven bounds only: nothing to choose
    if index.version.routing.algorithm == EXACT:
        return WIDTHS[0], cells
    if len(meter.queries) < FEW_QUERIES:
        return max(UNTUNED_WIDTH, 4 * meter.k), cells
    found = _cheapest(index, meter, target + (1.0 - target) / 4, cells)
    return found or (WIDTHS[-1], cells)


def widen(
    index: Index, rest: RecallMeter, chosen: tuple[int, int], *, target: float, cells: int
) -> tuple[int, int, Measure]:
    """Measure a chosen search with the other queries, and widen it as far as those need.

    Of many searches the one is chosen that the tuning queries flatter. Where the others find less
    than the target by it, it takes the next width, and more cells, until they do not.

    Args:
        index: the one chosen for.
        rest: queries that did not choose.
        chosen: search width and cells to probe, by `choose_widths`.
        target: recall.
        cells: that there are.

    Returns:
        Search width, cells to probe, and what is found by them: less than the target if the widest
        search finds less.
    """
    width, probe = chosen
    while True:
        measure = rest.measure(index, width=width, probe_partitions=probe)
        if measure.recall >= target or (width >= WIDTHS[-1] and probe >= cells):
            return width, probe, measure
        width = next((wider for wider in WIDTHS if wider > width), width)
        probe = next(more for more in _probes(cells) if more > probe or more == cells)


def _cheapest(
    index: Index, meter: RecallMeter, wanted: float, cells: int
) -> tuple[int, int] | None:
    """Return the width and cells that find enough at the least cost, as `Efforts` tells it.

    The narrowest width of all, which probes every cell, is found first, and the fewest cells that
    will do with it. Wider ones are tried with so many cells only as cost less than the best so far,
    and only while fewer cells lead to as many of the true neighbours as are wanted.
    """
    ladder = [cells] if len(index.version.routing.shards) == 1 else list(_probes(cells))

    def is_enough(place: int, at: int) -> bool:
        width, probe = WIDTHS[place], ladder[at]
        return meter.measure(index, width=width, probe_partitions=probe).low >= wanted

    first = _narrowest(lambda place: is_enough(place, len(ladder) - 1))
    if first is None:
        return None
    least = _least(index, meter, wanted, ladder)
    fewest = _bisected(least, len(ladder) - 1, lambda at: is_enough(first, at))
    efforts, best = Efforts(index, meter), (WIDTHS[first], ladder[fewest])
    for place in range(first + 1, len(WIDTHS)):
        bound = efforts.of(*best)
        costs_less = [
            at for at in range(least, fewest) if efforts.of(WIDTHS[place], ladder[at]) < bound
        ]
        if not costs_less:
            break
        for at in reversed(costs_less):
            if not is_enough(place, at):
                break
            fewest, best = at, (WIDTHS[place], ladder[at])
    return best


def _least(index: Index, meter: RecallMeter, wanted: float, ladder: Sequence[int]) -> int:
    """Return the place of the fewest cells that lead to as many true neighbours as are wanted."""
    last = len(ladder) - 1
    if not last:
        return last
    entered = EnteredShards(index, meter)
    return _bisected(0, last, lambda at: entered.recall(meter.k, ladder[at]).low >= wanted)


def _bisected(least: int, last: int, is_enough: Callable[[int], bool]) -> int:
    """Return the first place from the least on that is enough; the last one is, untried."""
    while least < last:
        middle = (least + last) // 2
        if is_enough(middle):
            last = middle
        else:
            least = middle + 1
    return last


def _narrowest(is_enough: Callable[[int], bool]) -> int | None:
    """Return the place of the narrowest width that is enough, by doubling and halving."""
    below, place = -1, 0
    while not is_enough(place):
        if place == len(WIDTHS) - 1:
            return None
        below = place
        place = next(
            (more for more, width in enumerate(WIDTHS) if width >= 2 * WIDTHS[place]),
            len(WIDTHS) - 1,
        )
    return _bisected(below + 1, place, is_enough)


def _probes(cells: int) -> Iterator[int]:
    ladder = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
    return chain((tried for tried in ladder if tried < cells), [cells])
