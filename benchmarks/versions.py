"""What versions cost as an index grows: bytes of many small refreshes, and their seconds."""

import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks import lakehouse
from benchmarks.data import enlarged, load
from benchmarks.refresh import delete_by_position, rows_of
from benchmarks.results import Result, Row

SIZES = (20_000, 340_000, 1_000_000)
REFRESHES = 200
KINDS = {"append": (100, 0), "delete": (0, 50), "update": (50, 50), "all of these": (100, 50)}
"""Rows appended and deleted before a refresh, by what it is called; in turns."""

TOTAL = "in total"

DELETED_BYTES = 4
"""Bytes of a row's position, which is what a delete file has of it."""
LOCATED_BYTES = 28
"""Bytes of a row's locator and identity."""


@dataclass
class _Spent:
    """What the refreshes of one kind took: bytes, seconds, and seconds of the processor."""

    change: int = 0
    written: int = 0
    copied: int = 0
    seconds: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)


def measure(name: str, rounds: int) -> Result:
    """Refresh tables of several sizes after the same small changes; once, whatever `rounds`."""
    del rounds
    data = load(name)
    result = Result(family="versions")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        lakehouse.configure(Path(temporary))
        followed = [_Followed(data.vectors, size, Path(temporary)) for size in SIZES]
        for number in range(REFRESHES):
            # In turns, so that what else the machine does slows all of them down alike.
            for table in followed:
                table.refresh(number)
        result.facts = [table.fact() for table in followed]
    small, large = followed[0].spent, followed[-1].spent
    result.rows = [_bytes_row(kind, small, large) for kind in (*KINDS, TOTAL)]
    result.rows.append(_seconds_row(small, large))
    return result


class _Followed:
    """A table whose index follows it.

    Args:
        vectors: that rows are made of.
        size: how many rows the table begins with.
        folder: where they are kept.
    """

    def __init__(self, vectors: np.ndarray, size: int, folder: Path) -> None:
        from puffin_ann.lifecycle.runtime.runners import InProcess

        self._vectors = enlarged(vectors, size, folder / f"{size}.npy")
        self._table = lakehouse.create_table(self._vectors, name=f"rows_{size}")
        # What is measured is bytes of versions, the same whatever finds a shard's rows.
        self._declared = lakehouse.declared(
            table=f"{lakehouse.CATALOG}.vectors.rows_{size}",
            algorithm="exact",
            recall_target=0.5,
            refresh={"delta_ratio": 0.5},
        )
        lakehouse.build(self._declared, f"build-{size}", InProcess())
        self._random = np.random.default_rng(1)
        self._live, self._next_id = list(range(size)), size
        self._size, self._most_files = size, 0
        self.spent: dict[str, _Spent] = defaultdict(_Spent)

    def refresh(self, number: int) -> None:
        """Change the table, and refresh its index after it."""
        from puffin_ann.lifecycle.runs.in_process import refresh_in_process
        from puffin_ann.search.version.versions import require_versions

        kind = list(KINDS)[number % len(KINDS)]
        appended, deleted = KINDS[kind]
        self._change(appended, deleted)
        began, worked = time.perf_counter(), time.process_time()
        done = refresh_in_process(
            self._declared, run_id=f"refresh-{self._size}-{number}", force=True
        )
        seconds, work = time.perf_counter() - began, time.process_time() - worked
        if done["action"] != "refresh":
            raise RuntimeError(f"not refreshed: {done['action']}, {done['reason']}")
        self._table.refresh()
        change = appended * (4 * self._vectors.shape[1] + LOCATED_BYTES) + deleted * DELETED_BYTES
        for mine in (self.spent[kind], self.spent[TOTAL]):
            mine.change += change
            mine.written += done["bytes_written"]
            mine.copied += done["bytes_copied"]
            mine.seconds.append(seconds)
            mine.work.append(work)
        version = require_versions(self._table, "bench")[0]
        self._most_files = max(self._most_files, len(version.needs))

    def _change(self, appended: int, deleted: int) -> None:
        if deleted:
            chosen = self._random.choice(len(self._live), deleted, replace=False)
            gone = [self._live.pop(place) for place in sorted(chosen, reverse=True)]
            delete_by_position(self._table, np.array(gone))
        if appended:
            ids = np.arange(self._next_id, self._next_id + appended)
            taken = self._vectors[self._random.integers(self._size, size=appended)]
            self._table.append(rows_of(taken + np.float32(0.01), ids, self._table))
            self._live += ids.tolist()
            self._next_id += appended

    def fact(self) -> str:
        """Return what it took, in words."""
        from puffin_ann.lake.metadata.own_tags import own_tags

        kinds = "; ".join(
            f"{kind}: {mine.written / mine.change:.2f} written, {mine.copied / mine.change:.2f} "
            f"copied, {statistics.median(mine.seconds):.2f} s"
            for kind, mine in self.spent.items()
        )
        return (
            f"{self._size:,} rows, {REFRESHES} refreshes, bytes ÷ bytes of the change, and median "
            f"seconds: {kinds}; a version names {self._most_files} other files at most, "
            f"{len(own_tags(self._table))} tags at the end"
        )


def _bytes_row(kind: str, small: dict[str, _Spent], large: dict[str, _Spent]) -> Row:
    least, most = (
        (spent[kind].written + spent[kind].copied) / spent[kind].change for spent in (small, large)
    )
    if kind == TOTAL:
        key, what = "total", "all these refreshes together"
    else:
        appended, deleted = KINDS[kind]
        key = kind.split()[0]
        what = f"refresh after {appended} rows were appended and {deleted} deleted"
    return Row(
        key=f"versions-{key}",
        what=f"{what}: bytes written and copied ÷ bytes of the change, {SIZES[-1]:,} rows ÷ "
        f"{SIZES[0]:,} rows",
        ours=f"{most:.2f}",
        theirs=f"{least:.2f}",
        measured=most / least,
        least=1.1,
        aim=1.02,
        below=True,
        note=f"{len(small[kind].seconds)} refreshes of each, without a merge",
    )


def _seconds_row(small: dict[str, _Spent], large: dict[str, _Spent]) -> Row:
    pairs = zip(large[TOTAL].seconds, small[TOTAL].seconds, strict=True)
    ratio = statistics.median([most / least for most, least in pairs])
    least, most = (statistics.median(spent[TOTAL].seconds) for spent in (small, large))
    work = [statistics.median(spent[TOTAL].work) for spent in (small, large)]
    return Row(
        key="versions-seconds",
        what=f"the same: seconds of a refresh, {SIZES[-1]:,} rows ÷ {SIZES[0]:,} rows",
        ours=f"{most:.3f} s",
        theirs=f"{least:.3f} s",
        measured=ratio,
        least=1.5,
        aim=1.2,
        below=True,
        note=f"median of {REFRESHES} pairs, in turns; of the processor {work[1]:.3f} s and "
        f"{work[0]:.3f} s",
    )
