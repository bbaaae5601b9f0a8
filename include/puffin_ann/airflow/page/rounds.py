"""Look for the rows of the page in the background, a few threads and one round at a time.

Whatever is declared and however many people look, a few threads look for it. A catalog that does
not answer holds up its own rows alone.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
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
class Seen:
    """A row, and how many seconds it took to find."""

    row: Row
    seconds: float


class Round:
    """One look at every declared index, shared by all who ask while it lasts and soon after.

    Args:
        paths: files of the declarations.
        earlier: what the round before found.
        look: finds a row.
        clock: seconds, from whenever.
    """

    def __init__(
        self,
        paths: list[Path],
        earlier: Mapping[Path, Seen],
        look: Callable[[Path], Row],
        clock: Callable[[], float],
    ) -> None:
        self.paths = paths
        self.ended: float | None = None if paths else clock()
        self._earlier = earlier
        self._look, self._clock = look, clock
        self._found: dict[Path, Future[Seen]] = {path: Future() for path in paths}
        self._waiting: SimpleQueue[Path] = SimpleQueue()
        # Those that were quick before come first: they are not to wait for those that were not.
        for path in sorted(paths, key=lambda path: earlier[path].seconds if path in earlier else 0):
            self._waiting.put(path)
        self._lock = threading.Lock()
        self._left = len(paths)

    def start(self) -> "Round":
        """Begin to look, in threads that no process waits for when it ends."""
        for number in range(min(THREADS, len(self.paths))):
            name = f"puffin-ann-rows-{number}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        return self

    def _work(self) -> None:
        while True:
            try:
                path = self._waiting.get_nowait()
            except Empty:
                return
            began = self._clock()
            try:
                row = self._look(path)
            except Exception:
                log.exception("the state of the index in %s cannot be found", path)
                row = row_with(path.stem, "", {"state": UNKNOWN})
            self._found[path].set_result(Seen(row, self._clock() - began))
            with self._lock:
                self._left -= 1
                if not self._left:
                    self.ended = self._clock()

    def seen(self) -> dict[Path, Seen]:
        """Return what is known by now: of this round, else of the one before."""
        return {
            path: self._found[path].result() if self._found[path].done() else self._earlier[path]
            for path in self.paths
            if self._found[path].done() or path in self._earlier
        }

    def rows(self) -> list[Row]:
        """Return a row for each declaration, whether it is found yet or not."""
        seen = self.seen()
        return [
            seen[path].row if path in seen else row_with(path.stem, "", {"state": STILL_LOOKING})
            for path in self.paths
        ]

    def is_worth_waiting_for(self) -> bool:
        """Tell whether rows are missing that should soon be there."""
        return any(
            not found.done()
            and (path not in self._earlier or self._earlier[path].seconds < PATIENCE_SECONDS)
            for path, found in self._found.items()
        )


class Board:
    """The rows of a folder of declarations, looked for by one round at a time.

    Args:
        look: finds the row of a declaration's file.
        clock: seconds, from whenever.
    """

    def __init__(
        self,
        look: Callable[[Path], Row] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._clock = look or row_of, clock
        self._lock = threading.Lock()
        self._round: Round | None = None

    def round(self, folder: Path) -> Round:
        """Return the round to take rows from: the last, or a new one if that is over and stale.

        What takes long is stale so long after it was found, not after it was asked for.
        """
        with self._lock:
            last = self._round
            if last is None or self._is_stale(last):
                paths = declaration_files(folder)
                earlier = last.seen() if last is not None else {}
                last = self._round = Round(paths, earlier, self._look, self._clock).start()
            return last

    def _is_stale(self, found: Round) -> bool:
        return found.ended is not None and self._clock() - found.ended >= FRESH_SECONDS
