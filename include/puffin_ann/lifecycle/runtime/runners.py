"""Where the tasks of a stage run: on Spark's executors, or one after the other in this process."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

from puffin_ann.settings import limit_threads, settings

Work = Callable[[str], str]
"""What one task does: JSON in, JSON out. It must not share memory with the caller."""


class Runner(Protocol):
    """Runs the tasks of a stage; only small texts go in and come out."""

    def run(self, work: Work, payloads: Sequence[str]) -> list[str]:
        """Run `work` once per payload, and return the answers in order."""
        ...

    def threads_per_task(self, tasks: int) -> int:
        """Return how many threads each of `tasks` simultaneous tasks may use."""
        ...

    def here(self) -> "InProcess":
        """Return a runner for work that is done sooner here than a task elsewhere begins."""
        ...


@dataclass(frozen=True)
class InProcess:
    """Runs tasks one after the other in this process: for small tables and for tests.

    Attributes:
        threads: to use at most; None means every core.
    """

    threads: int | None = None

    def run(self, work: Work, payloads: Sequence[str]) -> list[str]:
        """Run `work` once per payload, and return the answers in order."""
        with limit_threads(self.threads) if self.threads else nullcontext():
            return [work(payload) for payload in payloads]

    def threads_per_task(self, tasks: int) -> int:
        """Return every core there is to use: only one task runs at a time."""
        return min(settings().thread_count, self.threads or settings().thread_count)

    def here(self) -> "InProcess":
        """Return this runner."""
        return self
