"""What row ids save a refresh after a compaction: seconds, and bytes that it reads."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import lakehouse
from benchmarks.data import DataSet, load
from benchmarks.results import Result, Row
from benchmarks.settle import settle

LEAST_ROUNDS = 5


@dataclass(frozen=True)
class _Refresh:
    """One refresh.

    Attributes:
        read: bytes that the process read of files, whatever they were of.
        vectors: bytes of vectors decoded.
    """

    seconds: float
    read: int
    vectors: int


def measure(name: str, rounds: int) -> Result:
    """Compact a table with row ids, and refresh: by these, and in turn by hashing every vector."""
    data = load(name)
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        lakehouse.configure(Path(temporary))
        by_row_id, hashed = _alternate(data, Path(temporary), max(LEAST_ROUNDS, rounds))
    return Result(family=f"row-ids-{name}", rows=_rows(data, by_row_id, hashed))


def _alternate(data: DataSet, folder: Path, rounds: int) -> tuple[list[_Refresh], list[_Refresh]]:
    from puffin_ann.lifecycle.refresh.read_changes import known_rows
    from puffin_ann.lifecycle.runtime.runners import InProcess
    from tests.support.lake.lineage import LineageTable

    # PyIceberg writes no tables of version 3: this one has the files and manifest lists of one.
    with patch.object(known_rows, "has_row_ids", lambda _: True):
        table = lakehouse.create_table(data.vectors[:1])
        rows = LineageTable(table, lakehouse.ROW_GROUP_ROWS)
        rows.compact_without_lineage(rows.files(), _all_rows(data, table))
        lakehouse.build(lakehouse.declared(), "build", InProcess())
        table.refresh()
        found: dict[bool, list[_Refresh]] = {True: [], False: []}
        for number in range(2 * (rounds + 1)):
            rows.compact(rows.files(), rows.rows_of(rows.files()))
            by_row_id = number % 2 == 0
            with _believing(by_row_id):
                found[by_row_id].append(_refresh(table, folder, f"refresh-{number}"))
    return found[True][1:], found[False][1:]  # what is done first is compiled and imported for


def _all_rows(data: DataSet, table: Any) -> Any:
    """Return all rows of a data set as those of a benchmark's table."""
    from benchmarks.refresh import rows_of

    return rows_of(data.vectors, np.arange(len(data.vectors)), table)


@contextmanager
def _believing(by_row_id: bool) -> Iterator[None]:
    """Have refreshes know rows by their row ids, or hash them all."""
    from puffin_ann.settings import settings

    with patch.dict(os.environ, PUFFIN_ANN_ROW_LINEAGE=str(by_row_id).lower()):
        settings.cache_clear()
        yield
    settings.cache_clear()


def _refresh(table: Any, folder: Path, run_id: str) -> _Refresh:
    from puffin_ann.lifecycle.runs.in_process import refresh_in_process
    from puffin_ann.search.version.versions import newest_version

    settle(folder)
    began, before = time.perf_counter(), _bytes_read()
    done = refresh_in_process(lakehouse.declared(), run_id=run_id, force=True)
    seconds, read = time.perf_counter() - began, _bytes_read() - before
    if (done["action"], done["rows_added"], done["rows_gone"]) != ("refresh", 0, 0):
        raise RuntimeError(f"rows were not relocated: {done}")
    table.refresh()
    version: Any = newest_version(table, "bench")
    return _Refresh(seconds, read, int(version.routing.properties["vector-bytes-read"]))


def _bytes_read() -> int:
    """Return what the process has read so far, from page cache or disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar:")).split()[1])


def _rows(data: DataSet, by_row_id: list[_Refresh], hashed: list[_Refresh]) -> list[Row]:
    ours, theirs = (median(one.seconds for one in each) for each in (by_row_id, hashed))
    read, all_read = (median(one.read for one in each) for each in (by_row_id, hashed))
    what = f"refresh after a compaction that keeps row ids, {data.title}"
    return [
        Row(
            key=f"row-ids-{data.name}",
            what=f"{what} ÷ hashing every vector",
            ours=f"{ours:.3f} s",
            theirs=f"{theirs:.3f} s",
            measured=ours / theirs,
            least=1.0,
            aim=0.7,
            below=True,
            note=f"bytes of vectors read {by_row_id[0].vectors:,} and {hashed[0].vectors:,}",
        ),
        Row(
            key=f"row-ids-{data.name}-bytes",
            what="the same: bytes read of all files",
            ours=f"{read:,.0f} B",
            theirs=f"{all_read:,.0f} B",
            measured=read / all_read,
            least=0.3,
            aim=0.15,
            below=True,
        ),
    ]
