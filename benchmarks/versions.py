"""What versions cost as an index grows: bytes of many small refreshes, and their seconds."""

import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import lakehouse
from benchmarks.data import enlarged, load
from benchmarks.refresh import delete_by_position, rows_of
from benchmarks.results import Result, Row

if TYPE_CHECKING:
    from pyiceberg.table import Table

SIZES = (20_000, 340_000, 1_000_000)
REFRESHES = 200
KINDS = {"append": (100, 0), "delete": (0, 50), "update": (50, 50), "all of these": (100, 50)}
"""Rows appended and deleted before a refresh, by what it is called; in turns."""

DELETED_BYTES = 4
"""Bytes of a row's position, which is what a delete file has of it."""
LOCATED_BYTES = 28
"""Bytes of a row's locator and identity."""


@dataclass
class _Spent:
    """What the refreshes of one kind took: bytes and seconds."""

    change: int = 0
    written: int = 0
    copied: int = 0
    seconds: list[float] = field(default_factory=list)


def measure(name: str, rounds: int) -> Result:
    """Refresh tables of several sizes after the same small changes; once, whatever `rounds`."""
    del rounds
    data = load(name)
    result = Result(family="versions")
    spent: dict[int, dict[str, _Spent]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        lakehouse.configure(Path(temporary))
        for size in SIZES:
            vectors = enlarged(data.vectors, size, Path(temporary) / f"{size}.npy")
            spent[size] = _lived(vectors, result.facts)
    small, large = spent[SIZES[0]], spent[SIZES[-1]]
    result.rows = [_bytes_row(kind, small, large) for kind in small]
    result.rows.append(_seconds_row(small, large))
    return result


def _lived(vectors: np.ndarray, facts: list[str]) -> dict[str, _Spent]:
    from puffin_ann.lake.metadata.own_tags import own_tags
    from puffin_ann.lifecycle.runs.in_process import refresh_in_process
    from puffin_ann.lifecycle.runtime.runners import InProcess
    from puffin_ann.search.versions import require_versions

    size, width = vectors.shape
    table = lakehouse.create_table(vectors)
    # What is measured is bytes of versions, which are the same whatever finds a shard's rows.
    declared = lakehouse.declared(
        algorithm="exact", recall_target=0.5, refresh={"delta_ratio": 0.5}
    )
    lakehouse.build(declared, f"build-{size}", InProcess())
    random = np.random.default_rng(1)
    live, next_id = list(range(size)), size
    spent: dict[str, _Spent] = defaultdict(_Spent)
    most_files = 0
    for number in range(REFRESHES):
        kind = list(KINDS)[number % len(KINDS)]
        appended, deleted = KINDS[kind]
        if deleted:
            chosen = sorted(random.choice(len(live), deleted, replace=False), reverse=True)
            delete_by_position(table, np.array([live.pop(place) for place in chosen]))
        if appended:
            ids = np.arange(next_id, next_id + appended)
            rows = vectors[random.integers(size, size=appended)] + np.float32(0.01)
            table.append(rows_of(rows, ids, table))
            live += ids.tolist()
            next_id += appended
        began = time.perf_counter()
        done = refresh_in_process(declared, run_id=f"refresh-{size}-{number}", force=True)
        seconds = time.perf_counter() - began
        if done["action"] != "refresh":
            raise RuntimeError(f"not refreshed: {done['action']}, {done['reason']}")
        table.refresh()
        mine = spent[kind]
        mine.change += appended * (4 * width + LOCATED_BYTES) + deleted * DELETED_BYTES
        mine.written += done["bytes_written"]
        mine.copied += done["bytes_copied"]
        mine.seconds.append(seconds)
        most_files = max(most_files, len(require_versions(table, "bench")[0].needs))
    facts.append(_fact(table, size, spent, most_files, len(own_tags(table))))
    table.catalog.drop_table(table.name())
    shutil.rmtree(table.location().removeprefix("file://"))
    return spent


def _fact(table: "Table", size: int, spent: dict[str, _Spent], most_files: int, tags: int) -> str:
    kinds = "; ".join(
        f"{kind}: {mine.written / mine.change:.2f} written, {mine.copied / mine.change:.2f} "
        f"copied, {statistics.median(mine.seconds):.2f} s"
        for kind, mine in spent.items()
    )
    return (
        f"{size:,} rows, {REFRESHES} refreshes, bytes ÷ bytes of the change, and median seconds: "
        f"{kinds}; a version names {most_files} other files at most, {tags} tags"
    )


def _bytes_row(kind: str, small: dict[str, _Spent], large: dict[str, _Spent]) -> Row:
    least, most = (
        (spent[kind].written + spent[kind].copied) / spent[kind].change for spent in (small, large)
    )
    appended, deleted = KINDS[kind]
    return Row(
        key=f"versions-{kind.split()[0]}",
        what=f"refresh after {appended} rows were appended and {deleted} deleted: bytes written "
        f"and copied ÷ bytes of the change, {SIZES[-1]:,} rows ÷ {SIZES[0]:,} rows",
        ours=f"{most:.2f}",
        theirs=f"{least:.2f}",
        measured=most / least,
        least=1.1,
        aim=1.02,
        below=True,
        note=f"{REFRESHES // len(KINDS)} refreshes of each, without a merge",
    )


def _seconds_row(small: dict[str, _Spent], large: dict[str, _Spent]) -> Row:
    least, most = (
        statistics.median([seconds for mine in spent.values() for seconds in mine.seconds])
        for spent in (small, large)
    )
    return Row(
        key="versions-seconds",
        what=f"the same: median seconds of a refresh, {SIZES[-1]:,} rows ÷ {SIZES[0]:,} rows",
        ours=f"{most:.3f} s",
        theirs=f"{least:.3f} s",
        measured=most / least,
        least=1.5,
        aim=1.2,
        below=True,
        note=f"{REFRESHES} refreshes",
    )
