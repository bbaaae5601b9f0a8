"""Time, dealt out among stages without a gap."""

from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True)
class Stage:
    """A part of the time of a search; each lasts until the next begins."""

    name: str
    seconds: float


class Stages:
    """Measures stages, one after the other, from when it is made.

    Args:
        first: name of the stage that begins now.
    """

    def __init__(self, first: str) -> None:
        self._seconds: dict[str, float] = {}
        self._stage, self._since = first, perf_counter()

    def enter(self, stage: str) -> None:
        """End a stage and begin another, or go on with one that was before."""
        now = perf_counter()
        spent = self._seconds.get(self._stage, 0.0) + now - self._since
        self._seconds[self._stage] = spent
        self._stage, self._since = stage, now

    def stages(self) -> tuple[Stage, ...]:
        """End the stage and return all, in the order in which they began first."""
        self.enter(self._stage)
        return tuple(Stage(name, seconds) for name, seconds in self._seconds.items())
