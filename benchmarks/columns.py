"""Columns of the rows found: milliseconds and bytes, on disk and on S3, first and again."""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import lakehouse, lance_tables
from benchmarks.data import NEIGHBOURS, ROOT, load
from benchmarks.results import Result, Row
from benchmarks.s3 import on_s3
from benchmarks.settle import settle

ROW_GROUP_BYTES = 8 << 20
WORDS = 16
"""Of each row's text, a hundred characters."""
COLUMNS = ("id", "text")
DELAY = 0.030
ANSWERS = 60


def measure(name: str, rounds: int) -> Result:
    """Fetch an id and a text for each of 10 rows, beside answers of an index and by themselves."""
    del rounds
    sys.path.insert(0, str(ROOT))
    data = load(name)
    text = _texts(len(data.vectors))
    result = Result(family="columns")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        with on_s3(folder) as proxy:
            _on_s3(result, proxy, data.vectors, text)
            _on_disk(result, data.vectors, data.queries[:ANSWERS], text, folder)
    return result


def _texts(rows: int) -> list[str]:
    rng = np.random.default_rng(0)
    known = [f"word{number}" for number in range(20_000)]
    return [" ".join(known[at] for at in line) for line in rng.integers(20_000, size=(rows, WORDS))]


def _table(vectors: NDArray[np.float32], text: list[str], location: str | None = None) -> Any:
    rows = ROW_GROUP_BYTES // (4 * vectors.shape[1] + 8 + len(text[0]))
    return lakehouse.create_table(vectors, text, row_group_rows=rows, location=location)


def _on_s3(result: Result, proxy: Any, vectors: NDArray[np.float32], text: list[str]) -> None:
    table = _table(vectors, text)
    ask = _asking(table)
    settle()
    told = []
    for what in ("first", "again"):
        proxy.hold_back(DELAY)
        began = time.perf_counter()
        length = ask(0)
        seconds = time.perf_counter() - began
        told.append(
            f"{what} {1000 * seconds:.1f} ms, {proxy.rounds()} round trips, "
            f"{len(proxy.requests)} requests, {length / 1e6:.2f} MB"
        )
        if what == "first":
            result.rows.append(
                _row("rounds", "on S3, nothing seen before: round trips", proxy.rounds(), 2, 2, "")
            )
        proxy.hold_back(0.0)
    result.facts.append(
        f"{len(COLUMNS)} columns of {NEIGHBOURS} rows on S3, {DELAY * 1000:.0f} ms a request: "
        + "; ".join(told)
    )
    table.catalog.drop_table(table.name())


def _asking(table: Any) -> Callable[[int], int]:
    """Return what fetches the columns of 10 rows drawn by a seed, and gives the bytes it read."""
    from puffin_ann.lake.read.data.columns import ColumnReader, DataFile
    from puffin_ann.lake.read.data.parquet import row_group_rows
    from puffin_ann.lake.read.files.live_files import live_files

    live = live_files(table)
    groups = [row_group_rows(table.io, file.path) for file in live]
    files = [DataFile(file.path, file.size) for file in live]

    def ask(seed: int) -> int:
        rng = np.random.default_rng(seed)
        numbers = rng.integers(len(files), size=NEIGHBOURS)
        chosen = np.array([rng.integers(len(groups[number])) for number in numbers])
        offsets = [
            rng.integers(groups[number][group])
            for number, group in zip(numbers, chosen, strict=True)
        ]
        reader = ColumnReader(table, COLUMNS)
        reader.rows(files, numbers, chosen, np.array(offsets))
        return reader.bytes_read

    return ask


def _on_disk(
    result: Result,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    text: list[str],
    folder: Path,
) -> None:
    from puffin_ann import open_index
    from puffin_ann.lifecycle.runtime.runners import InProcess

    table = _table(vectors, text, f"file://{folder}/rows")
    ask = _asking(table)
    settle()
    began = time.perf_counter()
    length = ask(0)
    first = time.perf_counter() - began
    for seed in range(20):
        ask(seed)
    again = _median([partial(ask, seed) for seed in range(20, 20 + ANSWERS)])
    rows = _row("warm", "on disk, from the second time on", 1000 * again, 5, 1, "ms")
    result.rows.append(
        rows.model_copy(
            update={"note": f"the first time {1000 * first:.0f} ms and {length / 1e6:.2f} MB"}
        )
    )
    lakehouse.build(lakehouse.declared(), "build", InProcess())
    index = open_index(lakehouse.TABLE, "bench", cache="full")
    lance = _lance(vectors, text, folder)

    def mine(query: NDArray[np.float32], columns: tuple[str, ...]) -> Any:
        return index.search(query, NEIGHBOURS, columns=columns)

    asks: dict[str, Callable[..., Any]] = {"ours": mine, "LanceDB": lance}
    seconds = {}
    for who, search in asks.items():
        for columns in ((), COLUMNS):
            for query in queries:
                search(query, columns)
            calls = [partial(search, query, columns) for query in queries]
            seconds[who, bool(columns)] = 1000 * _median(calls)
    result.rows.append(
        Row(
            key="columns-beside",
            what="one query a call, id and text of the 10 rows found, on disk ÷ LanceDB",
            ours=f"{seconds['ours', True]:.2f} ms",
            theirs=f"{seconds['LanceDB', True]:.2f} ms",
            measured=seconds["ours", True] / seconds["LanceDB", True],
            least=1.0,
            aim=0.5,
            below=True,
            note=f"without the columns {seconds['ours', False]:.2f} ms; LanceDB "
            f"{seconds['LanceDB', False]:.2f} ms",
        )
    )


def _lance(vectors: NDArray[np.float32], text: list[str], folder: Path) -> Callable[..., Any]:
    made = lance_tables.create_table(lance_tables.connect(folder), vectors, {"text": text})
    lance_tables.index_by_graph(made)

    def search(query: NDArray[np.float32], columns: tuple[str, ...]) -> Any:
        asked = made.search(query).distance_type("l2").limit(NEIGHBOURS).ef(64)
        return asked.select([*columns, "_distance"]).to_arrow()

    return search


def _median(calls: Sequence[Callable[[], Any]]) -> float:
    found = []
    for call in calls:
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return median(found)


def _row(key: str, what: str, measured: float, least: float, aim: float, unit: str) -> Row:
    return Row(
        key=f"columns-{key}",
        what=f"id and text of 10 rows, row groups of 8 MB, {what}",
        ours=f"{measured:.3g} {unit}".strip(),
        theirs="–",
        measured=measured,
        least=least,
        aim=aim,
        below=True,
        unit=unit or "×",
    )
