"""Find the rows of the page in the background, by a few threads and one round at a time.

However much is declared and however many people load the page, there are no more threads. A
catalog that does not answer holds up its own rows alone.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from puffin_ann.airflow.page.rows import UNKNOWN, Row, row_of, row_with
from puffin_ann.declaration import declaration_files

log = logging.getLogger("puffin_ann")

FRESH_SECONDS = 15
"""For how long what was found is shown, from when it was found: catalogs are slow and metered."""

PATIENCE_SECONDS = 5
"""How long a page waits for rows that are not found yet, and for none that took longer before."""

THREADS = 8
STILL_LOOKING = "still looking; load the page again"


@dataclass(frozen=True)
class FoundRow:
    """A row, and how many seconds it took to find."""

    row: Row
    seconds: float


class Round:
    """One search for the rows of all declarations, shared by all who ask during it and soon after.

    Args:
        paths: files of the declarations.
        earlier: what the round before found.
        find: finds the row of a file.
        clock: seconds, from any start.
    """

    def __init__(
        self,
        paths: list[Path],
        earlier: Mapping[Path, FoundRow],
        find: Callable[[Path], Row],
        clock: Callable[[], float],
    ) -> None:
        self.paths = paths
        self.ended: float | None = None if paths else clock()
        self._earlier = earlier
        self._find, self._clock = find, clock
        self._found: dict[Path, Future[FoundRow]] = {path: Future() for path in paths}
        self._queue: SimpleQueue[Path] = SimpleQueue()
        # Those that were quick before come first: they are not to wait for those that were not.
        for path in sorted(paths, key=lambda path: earlier[path].seconds if path in earlier else 0):
            self._queue.put(path)
        self._lock = threading.Lock()
        self._left = len(paths)

    def start(self) -> "Round":
        """Begin, in threads that no process waits for when it ends."""
        for number in range(min(THREADS, len(self.paths))):
            name = f"puffin-ann-rows-{number}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        return self

    def _work(self) -> None:
        while True:
            try:
                path = self._queue.get_nowait()
            except Empty:
                return
            began = self._clock()
            try:
                row = self._find(path)
            except Exception:
                log.exception("the state of the index in %s cannot be found", path)
                row = row_with(path.stem, "", {"state": UNKNOWN})
            self._found[path].set_result(FoundRow(row, self._clock() - began))
            with self._lock:
                self._left -= 1
                if not self._left:
                    self.ended = self._clock()

    def known(self) -> dict[Path, FoundRow]:
        """Return what is found by now: in this round, else in the one before."""
        return {
            path: self._found[path].result() if self._found[path].done() else self._earlier[path]
            for path in self.paths
            if self._found[path].done() or path in self._earlier
        }

    def rows(self) -> list[Row]:
        """Return a row for each declaration, whether it is found yet or not."""
        known = self.known()
        return [
            known[path].row if path in known else row_with(path.stem, "", {"state": STILL_LOOKING})
            for path in self.paths
        ]

    def is_worth_waiting_for(self) -> bool:
        """Say whether rows are missing that should soon be there."""
        return any(
            not found.done()
            and (path not in self._earlier or self._earlier[path].seconds < PATIENCE_SECONDS)
            for path, found in self._found.items()
        )


class Rounds:
    """The rounds over folders of declarations, one at a time.

    Args:
        find: finds the row of a declaration's file.
        clock: seconds, from any start.
    """

    def __init__(
        self,
        find: Callable[[Path], Row] = row_of,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find, self._clock = find, clock
        self._lock = threading.Lock()
        self._last: Round | None = None

    def current(self, folders: Sequence[Path]) -> Round:
        """Return the round to take rows from: the last, or a new one if that is over and stale.

        What takes long is stale so long after it was found, not after it was asked for.
        """
        with self._lock:
            last = self._last
            if last is None or self._is_stale(last):
                paths = [path for folder in folders for path in declaration_files(folder)]
                earlier = last.known() if last is not None else {}
                last = self._last = Round(paths, earlier, self._find, self._clock).start()
            return last

    def _is_stale(self, found: Round) -> bool:
        return found.ended is not None and self._clock() - found.ended >= FRESH_SECONDS
