"""What the page of indexes shows, found in the background: a row for each declaration.

Whatever is declared and however many people look, a few threads look for it, one round at a time.
A catalog that does not answer holds up its own rows alone. The file is imported by every Airflow
process: what costs time is imported when somebody looks.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from puffin_ann.declaration import IndexDeclaration, declaration_files, load_declaration
from puffin_ann.errors import (
    DeclarationError,
    EnvironmentProblemError,
    IndexNotFoundError,
    PuffinAnnError,
)

if TYPE_CHECKING:
    from puffin_ann.lifecycle.report.status import IndexStatus

log = logging.getLogger("puffin_ann")

FRESH_SECONDS = 15
"""For how long what was found is shown, from when it was found: catalogs are slow and metered."""

PATIENCE_SECONDS = 5
"""How long a page waits for rows that are not found yet, and for none that took longer before."""

THREADS = 8
UNKNOWN = "cannot be found now; see the log of the API server"
STILL_LOOKING = "still looking; load the page again"


@dataclass(frozen=True)
class Row:
    """One index as the page shows it: texts, not yet escaped, by column."""

    dag_id: str
    cells: dict[str, str]


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
                row = _made(path.stem, "", {"state": UNKNOWN})
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
            seen[path].row if path in seen else _made(path.stem, "", {"state": STILL_LOOKING})
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
            is_over = last is not None and last.ended is not None
            if last is None or (is_over and self._clock() - last.ended >= FRESH_SECONDS):
                paths = declaration_files(folder)
                earlier = last.seen() if last is not None else {}
                self._round = Round(paths, earlier, self._look, self._clock).start()
            return self._round


def row_of(path: Path) -> Row:
    """Return the row of a declaration's file.

    An index whose state cannot be found has the reason as its state: the others are shown anyway.
    """
    try:
        declaration = load_declaration(path)
    except DeclarationError as error:
        return _made(path.stem, "", {"state": f"declaration not valid: {error}"})
    return _made(declaration.name, declaration.table, _state(declaration))


def _made(index: str, table: str, state: dict[str, str]) -> Row:
    dag_id = f"ann_build_{index}"
    return Row(dag_id, {"index": index, "table": table, "DAG": dag_id, **state})


def _state(declaration: IndexDeclaration) -> dict[str, str]:
    from puffin_ann.lake.catalog.tables import load_table
    from puffin_ann.lifecycle.report.status import status

    try:
        (found,) = status(load_table(declaration.table), declaration.name)
    except IndexNotFoundError:
        return {"state": "not built yet"}
    except EnvironmentProblemError as error:
        # It quotes what a catalog or a store said of itself: addresses and files, not for everyone.
        log.warning("the state of index %s cannot be found: %s", declaration.name, error)
        return {"state": UNKNOWN}
    except PuffinAnnError as error:
        return {"state": str(error)}
    except Exception:
        log.exception("the state of index %s cannot be found", declaration.name)
        return {"state": UNKNOWN}
    return _figures(found, declaration)


def _figures(found: "IndexStatus", declaration: IndexDeclaration) -> dict[str, str]:
    if found.fingerprint != declaration.fingerprint():
        state = "declaration changed since it was built"
    elif found.rows_to_scan or found.rows_masked:
        state = f"{found.rows_to_scan:,} rows added, {found.rows_masked:,} deleted since"
    else:
        state = "up to date"
    return {
        "state": state,
        "vectors": f"{found.vectors:,}",
        "in deltas": f"{found.delta_rows:,}" if found.deltas else "",
        "tombstones": f"{found.tombstone_ratio:.1%}" if found.tombstones else "",
        "coverage": f"{found.coverage:.2%}",
        "recall": "" if found.recall is None else f"{found.recall:.4f}",
        "MB": f"{found.bytes / 1e6:,.1f}",
        "published": found.published_at or "",
    }
