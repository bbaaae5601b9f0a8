"""Prices updated each hour: what an index that includes them takes to follow, and what it leaves.

An engine that changes a price writes the row anew: with its whole file (copy-on-write), or to a
file beside, its former place deleted (merge-on-read). Vector and key are what they were, so it is
the same row in another place: a refresh reads its price there, and touches no graph. Hours follow
one another without a build between them, since what was written of changes is put together now and
then; what a build takes is measured by another index of the same table.
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import lakehouse
from benchmarks.data import DataSet, load
from benchmarks.refresh import delete_by_position, timed_build, timed_refresh
from benchmarks.results import Result, Row
from benchmarks.versions import LOCATED_BYTES
from puffin_ann.blobs.shards import delta, graph, hnsw, ivf

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from puffin_ann.search.version.index_version import IndexVersion

PRICE = "price"
VALUE_BYTES = 8
SHARE = 0.2
"""Of the rows, whose price is another after an hour."""
HOURS = 6
HIGHEST = 10_000
BELOW = (100, 1_000)
"""What prices are asked to be below: a hundredth of them is, and a tenth."""
OF_VECTORS = (graph.TYPE, hnsw.TYPE, ivf.TYPE, delta.TYPE)
"""Blobs that have vectors, their codes, and what finds them."""

Numbers = NDArray[np.int64]
Place = tuple[str, int]
"""Of a blob: its file, which is never written again, and where it begins there."""


def _copy_on_write(table: "Table", _: Numbers, prices: Numbers) -> None:
    """Rewrite every file: each has a row of which the price is another."""
    table.overwrite(_repriced(table.scan().to_arrow(), prices))


def _merge_on_read(table: "Table", changed: Numbers, prices: Numbers) -> None:
    """Delete rows by position, and write them to files beside."""
    rows = table.scan().to_arrow()
    moved = np.flatnonzero(np.isin(rows.column("id").to_numpy(), changed))
    delete_by_position(table, changed)
    table.append(_repriced(rows.take(pa.array(moved)), prices))


def _repriced(rows: pa.Table, prices: Numbers) -> pa.Table:
    """Return rows with the prices that they have by now, and else as they were."""
    at = rows.schema.get_field_index(PRICE)
    values = pa.array(prices[rows.column("id").to_numpy()])
    return rows.set_column(at, rows.schema.field(at), values)


UPDATES: Mapping[str, Callable[["Table", Numbers, Numbers], None]] = {
    "copy-on-write": _copy_on_write,
    "merge-on-read": _merge_on_read,
}
"""What commits an update, given the rows whose prices changed, and the prices of all."""


@dataclass(frozen=True)
class Hour:
    """What followed an update.

    Attributes:
        seconds: of the refresh.
        steps: of these, by what was done.
        built: seconds of building another index of the same table, right after it.
        changed: rows whose price is another.
        moved: rows that are in another file.
        written: bytes of the new version's file, what was copied apart.
        copied: bytes.
        of_vectors: bytes of the version's blobs that have vectors, see `OF_VECTORS`.
        anew: of these, bytes of those that the version before did not have where they are.
    """

    seconds: float
    steps: Mapping[str, float]
    built: float
    changed: int
    moved: int
    written: int
    copied: int
    of_vectors: int
    anew: int


def measure(name: str, rounds: int) -> Result:
    """Let hours pass over a table of each mode: as many as rounds, if those are more."""
    data = load(name)
    result = Result(family="prices")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        lakehouse.configure(Path(temporary))
        for mode in UPDATES:
            shop = _Shop(data, mode, Path(temporary))
            # What is done first is compiled and imported for.
            hours = [shop.pass_hour(number) for number in range(1 + max(HOURS, rounds))][1:]
            result.rows += rows_of(mode, data, hours)
            result.facts.append(told(mode, data, hours))
    result.facts.append(
        "after each hour searches for all rows of a price, "
        + " and ".join(f"`{PRICE} < {below}`" for below in BELOW)
        + ", gave the rows and prices of the oracle and no others, and read nothing of the table"
    )
    return result


class _Shop:
    """A table with prices whose index follows it.

    Args:
        data: of which the table has a row for each vector.
        mode: key of `UPDATES`.
        folder: that all of the lake is in.
    """

    def __init__(self, data: DataSet, mode: str, folder: Path) -> None:
        self._data, self._mode, self._folder = data, mode, folder
        self._random = np.random.default_rng(3)
        self._prices = self._random.integers(HIGHEST, size=len(data.vectors))
        name = mode.replace("-", "_")
        self._table = lakehouse.create_table(data.vectors, name=name, numbers={PRICE: self._prices})
        fields = {"table": f"{lakehouse.CATALOG}.vectors.{name}", "include": [PRICE]}
        self._declared = lakehouse.declared(**fields)
        self._built_anew = lakehouse.declared(**fields, name="anew")
        timed_build(self._declared, f"build-{mode}", folder)

    def pass_hour(self, number: int) -> Hour:
        """Update prices, refresh, hold answers to the oracle, and build to compare."""
        changed = self._update()
        before = self._version()
        seconds, steps, done = timed_refresh(
            self._declared, f"refresh-{self._mode}-{number}", self._folder
        )
        if (done["rows_added"], done["rows_gone"]) != (0, 0):
            raise RuntimeError(f"rows were not known again: {done}")
        now = self._version()
        there = places_of_vectors(self._table, now)
        self._hold_to_oracle()
        return Hour(
            seconds,
            steps,
            timed_build(self._built_anew, f"build-{self._mode}-{number}", self._folder),
            changed=changed,
            moved=changed if self._mode == "merge-on-read" else len(self._prices),
            written=done["bytes_written"],
            copied=done["bytes_copied"],
            of_vectors=sum(there.values()),
            anew=bytes_anew(places_of_vectors(self._table, before), there),
        )

    def _update(self) -> int:
        """Give a share of the rows a price that is another; returns how many they are."""
        rows = len(self._prices)
        changed = np.sort(self._random.choice(rows, round(rows * SHARE), replace=False))
        more = self._random.integers(1, HIGHEST, size=len(changed))
        self._prices[changed] = (self._prices[changed] + more) % HIGHEST
        self._table.refresh()
        UPDATES[self._mode](self._table, changed, self._prices)
        return len(changed)

    def _version(self) -> "IndexVersion":
        from puffin_ann.search.version.versions import require_versions

        return require_versions(self._table.refresh(), self._declared.name)[0]

    def _hold_to_oracle(self) -> None:
        from puffin_ann.search.open_index import open_index

        index = open_index(self._table.refresh(), self._declared.name)
        for below in BELOW:
            hold_to_oracle(index, self._data.queries[0], self._prices, below)


def places_of_vectors(table: "Table", version: "IndexVersion") -> dict[Place, int]:
    """Return the bytes of a version's blobs that have vectors, by where these are."""
    with version.files(table.io) as files:
        return {
            (place.path, place.metadata.offset): place.metadata.length
            for place in files.every_place()
            if place.metadata.type in OF_VECTORS
        }


def bytes_anew(before: Mapping[Place, int], now: Mapping[Place, int]) -> int:
    """Return the bytes of blobs that are where none of the version before is."""
    return sum(length for place, length in now.items() if place not in before)


def hold_to_oracle(index: Any, query: NDArray[np.float32], prices: Numbers, below: int) -> None:
    """Ask for all rows of a price.

    Args:
        index: of rows by whose ids `prices` are.
        query: (d,) float32.
        prices: (n,) int64, the true ones.
        below: what the price is to be less than.

    Raises:
        RuntimeError: others are answered, or others' prices; or the table was read for them: an
            index that keeps no prices is up to date without any work.
    """
    true = np.flatnonzero(prices < below)
    where = f"{PRICE} < {below}"
    found = index.search(query, len(true) + 1, columns=["id", PRICE], where=where, allow_fewer=True)
    ids = found.column("id").to_numpy()
    if not np.array_equal(np.sort(ids), true):
        both = len(np.intersect1d(ids, true))
        raise RuntimeError(
            f"{where}: {len(ids)} rows answered, {both} of the {len(true)} true ones"
        )
    if not np.array_equal(found.column(PRICE).to_numpy(), prices[ids]):
        raise RuntimeError(f"{where}: answered with prices that the rows do not have")
    # What is asked for beside the price is read of the table, and the price with it.
    alone = index.search(query, len(true), columns=[PRICE], where=where)
    included = json.loads(alone.schema.metadata[b"puffin_ann"])["rows_with_columns"]
    read = index._allowed(where).matching.bytes_read
    if (included, read) != (len(ids), 0):
        raise RuntimeError(
            f"{where}: the index has prices of {included} of {len(ids)} rows, and {read} bytes of "
            "the table were read"
        )


def rows_of(mode: str, data: DataSet, hours: Sequence[Hour]) -> list[Row]:
    """Return the lines of a mode."""
    middle = sorted(hours, key=lambda hour: hour.seconds / hour.built)[len(hours) // 2]
    steps = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in middle.steps.items())
    anew = sum(hour.anew for hour in hours)
    spent = sum(hour.written + hour.copied for hour in hours)
    values = VALUE_BYTES * sum(hour.changed for hour in hours)
    of_moved = (VALUE_BYTES + LOCATED_BYTES) * sum(hour.moved for hour in hours)
    return [
        Row(
            key=f"prices-{mode}",
            what=f"refresh after {100 * SHARE:g} % of prices were updated {mode} ÷ building, "
            f"{data.title}",
            ours=f"{middle.seconds:.2f} s",
            theirs=f"{middle.built:.2f} s",
            measured=middle.seconds / middle.built,
            least=0.05,
            aim=0.025,
            below=True,
            note=f"{len(hours)} hours, one after the other; {steps}",
        ),
        Row(
            key=f"prices-{mode}-graphs",
            what="the same: bytes of graphs, codes and vectors written anew, in all hours",
            ours=f"{anew:,} B",
            theirs=f"{hours[-1].of_vectors:,} B there",
            measured=anew,
            least=0,
            aim=0,
            below=True,
            unit="B",
        ),
        Row(
            key=f"prices-{mode}-bytes",
            what="the same: bytes written and copied ÷ bytes of the changed values",
            ours=f"{spent:,} B",
            theirs=f"{values:,} B",
            measured=spent / values,
            least=of_moved / values,
            aim=of_moved / values / 2,
            below=True,
            note=f"the bound is what {LOCATED_BYTES} bytes, as a locator and an identity have, and "
            f"{VALUE_BYTES} of the value take of each row that moved, {of_moved:,} bytes; "
            "identities are not among what is written",
        ),
    ]


def told(mode: str, data: DataSet, hours: Sequence[Hour]) -> str:
    """Tell of each hour."""
    each = "; ".join(
        f"{hour.seconds:.3f} s and {hour.written:,} bytes written"
        + (f", {hour.copied:,} copied" if hour.copied else "")
        for hour in hours
    )
    return (
        f"{data.title}, {hours[0].changed:,} prices updated {mode} each hour, {len(hours)} hours, "
        f"refreshed in {median(hour.seconds for hour in hours):.3f} s at the median: {each}"
    )
