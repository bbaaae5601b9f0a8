"""What keeping an index up to date costs, against building it again over the same final table."""

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import lakehouse
from benchmarks.data import NEIGHBOURS, DataSet, load
from benchmarks.results import Result, Row
from benchmarks.settle import settle

CHANGES_OF = {"coverage-changes": "coverage", "tombstone-changes": "tombstones"}
"""Blobs that tell of changes, and those that they are counted among."""

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from puffin_ann.declaration import IndexDeclaration

ROUNDS_OF_CHANGE = 10
BYTES_A_DELETED_ROW = 2

SHARE = 0.05
SEED = 0


def measure(name: str, rounds: int) -> Result:
    """Change a table in each of the ways there are, refresh, and build again to compare."""
    data = load(name)
    result = Result(family="refresh")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        lakehouse.configure(folder)
        lived = Life(data, folder)
        lived.start()
        lived.warm_up()
        for change in (_append, _merge_on_read, _copy_on_write, _compaction, _merge):
            result.rows += _middle([change(lived, data) for _ in range(rounds)])
        result.rows.append(_recall(lived, data, result.facts))
    return result


def _middle(rounds: list[list[Row]]) -> list[Row]:
    """Return the round of the median ratio: a refresh, and the build that it is compared with."""
    return sorted(rounds, key=lambda rows: rows[0].measured or 0.0)[len(rounds) // 2]


@dataclass(frozen=True)
class _Cost:
    """A refresh: seconds, those of its steps, bytes of the new file, and what was done."""

    seconds: float
    steps: dict[str, float]
    written: int
    counts: dict[str, int]


class Life:
    """A table and its index, changed and refreshed step by step."""

    def __init__(self, data: DataSet, folder: Path) -> None:
        self.data = data
        self.folder = folder
        self.random = np.random.default_rng(SEED)
        self.spare = round(len(data.vectors) * 0.9)
        self.runs = 0

    def start(self) -> None:
        self.table: Table = lakehouse.create_table(self.data.vectors[: self.spare])
        self.build()

    def warm_up(self) -> None:
        """Do everything once: what is compiled at its first use must not be measured."""
        for how in (self.append, self.delete_merge_on_read, self.delete_copy_on_write):
            self.change(how, 0.002)
        self.change(self.append, 0.002, delta_ratio=0.0)
        self.build()

    def build(self) -> float:
        """Build again; returns the seconds that it took."""
        self.runs += 1
        seconds = timed_build(lakehouse.declared(), f"build-{self.runs}", self.folder)
        self.table.refresh()
        return seconds

    def change(self, how: Callable[[float], Any], share: float, **refresh: Any) -> _Cost:
        """Change the table, and refresh."""
        how(share)
        return self.refresh(**refresh)

    def refresh(self, **options: Any) -> _Cost:
        self.runs += 1
        declared = lakehouse.declared(refresh={"delta_ratio": 0.5, **options})
        before = self._shards()["rows"]
        seconds, steps, done = timed_refresh(declared, f"refresh-{self.runs}", self.folder)
        self.table.refresh()
        counts = self._shards()
        counts["inserted"] = counts["rows"] - before
        return _Cost(seconds, steps, done["bytes_written"], counts)

    def _shards(self) -> dict[str, int]:
        routing = self.version().routing
        return {
            "rows": sum(shard.rows for shard in routing.shards),
            "deleted": sum(shard.tombstones for shard in routing.shards),
            "deltas": sum(shard.kind == "delta" for shard in routing.shards),
            "graph rows": sum(shard.rows for shard in routing.shards if shard.kind == "graph"),
        }

    def version(self) -> Any:
        from puffin_ann.search.version.versions import newest_version

        return newest_version(self.table, "bench")

    def blobs(self) -> dict[str, int]:
        """Return bytes of the newest version's blobs, by what they are."""
        from puffin_ann.search.version.index_files import open_puffin

        found: Counter[str] = Counter()
        with open_puffin(self.table.io, self.version().path) as reader:
            for blob in reader.metadata.blobs:
                kind = blob.type.removeprefix("puffin-ann-").rpartition("-v")[0]
                found[CHANGES_OF.get(kind, kind)] += blob.length
        return found

    def append(self, share: float) -> None:
        count = round(len(self.data.vectors) * share)
        rows = np.arange(self.spare, self.spare + count) % len(self.data.vectors)
        self.spare += count
        self.table.append(rows_of(self.data.vectors[rows], rows, self.table))

    def delete_merge_on_read(self, share: float) -> None:
        """Commit position deletes of random rows, as engines do: one delete file for the table."""
        ids = self.table.scan(selected_fields=("id",)).to_arrow().column("id").to_numpy()
        chosen = self.random.choice(ids, round(len(ids) * share), replace=False)
        delete_by_position(self.table, chosen)

    def delete_copy_on_write(self, share: float) -> None:
        """Rewrite every file without random rows."""
        data = self.table.scan().to_arrow()
        keep = np.sort(
            self.random.choice(len(data), len(data) - round(len(data) * share), replace=False)
        )
        self.table.overwrite(data.take(pa.array(keep)))

    def compact(self, _: float) -> None:
        """Write every live row into new files."""
        self.table.overwrite(self.table.scan().to_arrow())


def timed_refresh(
    declared: "IndexDeclaration", run_id: str, folder: Path
) -> tuple[float, dict[str, float], dict[str, Any]]:
    """Refresh, and build nothing; returns its seconds, those of its steps, and what was done."""
    settle(folder)
    return lakehouse.timed_run(declared, run_id, "refresh")


def timed_build(declared: "IndexDeclaration", run_id: str, folder: Path) -> float:
    """Build; returns the seconds of its stages, publication included."""
    from puffin_ann.lifecycle.runtime.runners import InProcess

    settle(folder)
    began = time.perf_counter()
    lakehouse.build(declared, run_id, InProcess())
    return time.perf_counter() - began


def delete_by_position(table: "Table", ids: NDArray[np.int64]) -> None:
    """Delete rows by a position-delete file, which PyIceberg does not write: the tests do."""
    from tests.support.lake.tables import delete_positions

    deletes = {}
    for task in table.scan().plan_files():
        path = task.file.file_path
        there = pq.read_table(path.removeprefix("file://"), columns=["id"]).column("id").to_numpy()
        places = np.flatnonzero(np.isin(there, ids))
        if len(places):
            deletes[path] = places.tolist()
    delete_positions(table, deletes)
    table.refresh()


def rows_of(vectors: NDArray[np.float32], ids: NDArray[np.int64], table: "Table") -> pa.Table:
    """Return rows of a benchmark's table."""
    offsets = pa.array(np.arange(len(vectors) + 1, dtype=np.int32) * vectors.shape[1])
    lists = pa.ListArray.from_arrays(offsets, pa.array(vectors.ravel()))
    return pa.table([pa.array(ids), lists], schema=table.schema().as_arrow())


def _row(
    key: str, what: str, data: DataSet, cost: _Cost, built: float, bound: float, note: str
) -> Row:
    steps = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in cost.steps.items())
    return Row(
        key=key,
        what=f"{what} ÷ building, {data.title}",
        ours=f"{cost.seconds:.2f} s",
        theirs=f"{built:.2f} s",
        measured=cost.seconds / built,
        least=bound,
        aim=bound / 2,
        below=True,
        note=f"{note}; {steps}",
    )


def _append(lived: Life, data: DataSet) -> list[Row]:
    cost = lived.change(lived.append, 0.01, delta_ratio=0.5)
    blobs = lived.blobs()
    note = (
        f"{cost.written:,} new bytes; the delta alone has {blobs['delta']:,}"
        f" ({cost.written / blobs['delta']:.2f} ×)"
    )
    built = lived.build()
    return [
        _row("refresh-append", "refresh after 1 % was appended", data, cost, built, 0.05, note),
        Row(
            key="refresh-append-bytes",
            what="the same: new bytes ÷ the delta's own",
            ours=f"{cost.written:,} B",
            theirs=f"{blobs['delta']:,} B",
            measured=cost.written / blobs["delta"],
            least=1.2,
            aim=1.1,
            below=True,
        ),
    ]


def _merge_on_read(lived: Life, data: DataSet) -> list[Row]:
    before = lived.blobs()
    cost = lived.change(lived.delete_merge_on_read, 0.01)
    after = lived.blobs()
    coverage = after["coverage"] - before["coverage"]
    deleted = cost.counts["deleted"]
    note = (
        f"{cost.written:,} new bytes for {deleted:,} deleted rows, "
        f"tombstones {after['tombstones']:,} ({after['tombstones'] / deleted:.2f} B a row), "
        f"coverage {after['coverage']:,} ({coverage:+,}), routing {after['routing']:,}"
    )
    built = lived.build()
    what = "refresh after 1 % was deleted merge-on-read"
    beyond = cost.written - coverage - BYTES_A_DELETED_ROW * deleted
    return [
        _row("refresh-delete", what, data, cost, built, 0.01, note),
        Row(
            key="refresh-delete-bytes",
            what=f"the same: new bytes beyond {BYTES_A_DELETED_ROW} a deleted row and the growth "
            "of the coverage",
            ours=f"{cost.written:,} B",
            theirs="–",
            measured=beyond / 1000,
            least=16.0,
            aim=8.0,
            below=True,
            unit=" kB",
        ),
    ]


def _copy_on_write(lived: Life, data: DataSet) -> list[Row]:
    cost = lived.change(lived.delete_copy_on_write, 0.01)
    built = lived.build()
    what = "refresh after 1 % was deleted and every file rewritten"
    return [_row("refresh-rewrite", what, data, cost, built, 0.05, _moved(lived, cost))]


def _compaction(lived: Life, data: DataSet) -> list[Row]:
    cost = lived.change(lived.compact, 0)
    built = lived.build()
    what = "refresh after a compaction of the whole table"
    return [_row("refresh-compaction", what, data, cost, built, 0.05, _moved(lived, cost))]


def _moved(lived: Life, cost: _Cost) -> str:
    return (
        f"{cost.counts['deltas']} deltas, {cost.counts['deleted']:,} rows deleted, "
        f"{cost.counts['inserted']:,} inserted; {cost.written:,} new bytes"
    )


def _merge(lived: Life, data: DataSet) -> list[Row]:
    cost = lived.change(lived.append, SHARE, delta_ratio=0.0)
    if cost.counts["deltas"]:
        raise RuntimeError("the deltas were not merged")
    built = lived.build()
    note = f"{cost.written:,} new bytes"
    return [_row("refresh-merge", "merge of 5 %", data, cost, built, 0.25, note)]


def _recall(lived: Life, data: DataSet, facts: list[str]) -> Row:
    """Delete and insert in turn, and compare what is then found with a fresh build's answers."""
    from puffin_ann.search.open_index import open_index

    for _ in range(ROUNDS_OF_CHANGE):
        lived.delete_merge_on_read(SHARE)
        lived.append(SHARE)
        cost = lived.refresh(delta_ratio=0.0)
    facts.append(f"after {ROUNDS_OF_CHANGE} rounds: {cost.counts}")
    index = open_index(lived.table, "bench")
    routing = index.version.routing
    effort = {"width": routing.search_width, "probe_partitions": routing.probe_partitions}
    aged = _found(index, data.queries, effort)
    lived.build()
    index = open_index(lived.table, "bench")
    fresh = _found(index, data.queries, effort)
    return Row(
        key="refresh-recall",
        what=f"recall@10 lost after {ROUNDS_OF_CHANGE} rounds of deleting 5 %, inserting 5 % and "
        f"merging, against a fresh build at equal search width, {data.title}",
        ours=f"{aged:.4f}",
        theirs=f"{fresh:.4f}",
        measured=fresh - aged,
        least=0.01,
        aim=0.0,
        below=True,
        unit="",
        note=f"width {effort['width']}, {effort['probe_partitions']} partitions probed",
    )


def _found(index: Any, queries: NDArray[np.float32], effort: dict[str, int]) -> float:
    """Return recall@10 of searches against comparing every row."""
    near = index.search(queries, NEIGHBOURS, **effort).column("distance").to_numpy()
    true = index.search(queries, NEIGHBOURS, exhaustive=True).column("distance").to_numpy()
    shape = (len(queries), NEIGHBOURS)
    found = near.reshape(shape) <= true.reshape(shape)[:, -1:]
    return float(found.mean())
