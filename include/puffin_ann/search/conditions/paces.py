"""How long searches and comparisons take in this process, against what was measured elsewhere.

The figures of `ways` are of one machine, and of graphs that its caches held. Which way costs less
depends on how memory and processor do here. So batches are timed, and what they took corrects the
figures: slowly, since whatever else the machine does may lengthen any of them.
"""

from enum import Enum

LEAST_QUERIES = 32
"""Of smaller batches most is the way there and back, which takes as long whatever is done."""

STEP, STEP_ALONE = 1.25, 1.1
"""By how much one batch moves a figure at most: half of a batch may have been another's turn. One
query tells less: some take twice as long as others."""

MOST = 4.0
"""By how much a figure is corrected at most, either way."""


class Work(Enum):
    """What is timed."""

    WALK = "walk"
    WALK_ALONE = "walk of few queries"
    COMPARE = "compare"
    COMPARE_BY_SIGNS = "compare by signs"
    GATHER = "gather"
    ORDER = "gather rows whose signs are known"


_paces: dict[tuple[Work, str], float] = {}


def pace(work: Work, engine: str = "") -> float:
    """Return how many times as long something takes as was measured elsewhere; 1 if not known.

    Args:
        work: what is done.
        engine: that does it; empty if none does.
    """
    return _paces.get((work, engine), 1.0)


def note(work: Work, engine: str, estimated: float, seconds: float, queries: int) -> None:
    """Learn from a batch; threads that learn at once may lose one.

    Args:
        work: see `pace`.
        engine: see `pace`.
        estimated: seconds of one thread that it was expected to take, as corrected so far.
        seconds: that it took, times the threads it could take.
        queries: in the batch.
    """
    if queries >= LEAST_QUERIES:
        learn(work, engine, estimated, seconds)


def learn(work: Work, engine: str, estimated: float, seconds: float, step: float = STEP) -> None:
    """Learn from work whose time no number of queries decides; see `note`.

    Args:
        work: see `pace`.
        engine: see `pace`.
        estimated: see `note`.
        seconds: see `note`.
        step: by how much the figure is moved at most.
    """
    if estimated <= 0.0:
        return
    before = pace(work, engine)
    now = before * min(step, max(1.0 / step, seconds / estimated))
    _paces[work, engine] = min(MOST, max(1.0 / MOST, now))


def forget() -> None:
    """Forget what was learned."""
    _paces.clear()
