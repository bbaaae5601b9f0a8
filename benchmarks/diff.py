"""Planning over a table of very many data files: what an index covers against what is live."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks import lakehouse
from benchmarks.results import Result, Row

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

MANIFESTS = 100
FILES_PER_MANIFEST = 1000
ROWS = 10_000
TABLE = f"{lakehouse.CATALOG}.synthetic.files"
COVERAGE = "coverage.blob"


def measure(rounds: int) -> Result:
    """Write manifests of files that do not exist, then compare in fresh processes."""
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        lakehouse.configure(folder)
        synthesize(folder)
        runs = [_fresh(folder) for _ in range(rounds)]
    cold, changed, first, peak = (median(one[key] for one in runs) for key in _KEYS)
    count = f"{MANIFESTS * FILES_PER_MANIFEST:,} data files"
    what = f"live files of a snapshot and their difference to what is covered, {count}"
    return Result(
        family="diff",
        rows=[
            Row(
                key="diff-cold",
                what=f"{what}, fresh process",
                ours=f"{cold:.2f} s",
                theirs="–",
                measured=cold,
                least=5.0,
                aim=5.0,
                below=True,
                unit="s",
                note=f"{MANIFESTS} synthetic manifests with statistics of two columns, on local "
                "disk; imports not counted",
            ),
            Row(
                key="diff-memory",
                what=f"the same: peak memory of the whole process, {count}",
                ours=f"{peak:.0f} MB",
                theirs=f"{first:.0f} MB after the imports",
                measured=peak,
                least=400,
                aim=400,
                below=True,
                unit="MB",
            ),
            Row(
                key="diff-changed",
                what=f"the same once more, when one manifest of {MANIFESTS} has changed since",
                ours=f"{changed:.2f} s",
                theirs=f"{cold:.2f} s cold",
                measured=changed,
                least=0.3,
                aim=0.3,
                below=True,
                unit="s",
            ),
        ],
    )


_KEYS = ("cold", "changed", "first", "peak")


def _fresh(folder: Path) -> dict[str, float]:
    """Measure in a process of its own; returns seconds, and megabytes of resident memory."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.diff", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    if done.returncode:
        raise RuntimeError(f"the comparison failed: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(folder: str) -> None:
    """Compare both snapshots of the synthetic table with the coverage of the first."""
    from pyiceberg.catalog import load_catalog

    from puffin_ann.blobs import coverage
    from puffin_ann.lake.deletes import deleted_positions
    from puffin_ann.lake.diff import Covered, difference
    from puffin_ann.lake.live import live_files

    catalog = load_catalog(lakehouse.CATALOG)
    name = TABLE.removeprefix(f"{lakehouse.CATALOG}.")
    history = [one.snapshot_id for one in catalog.load_table(name).history()]
    found = {"first": _highest()}
    for key, snapshot, expected in (("cold", history[0], 0), ("changed", history[1], ROWS)):
        began = time.perf_counter()
        table = catalog.load_table(name)
        version = coverage.decode((Path(folder) / COVERAGE).read_bytes())
        known = [
            Covered(
                one.file_id,
                f"{table.location()}/{one.path}",
                one.size,
                one.sequence_number,
                one.rows,
                one.deleted,
                one.skipped,
            )
            for one in version.files
        ]
        live = live_files(table, snapshot)
        compared = difference(known, live, deleted_positions(table.io, live))
        found[key] = time.perf_counter() - began
        if (compared.scanned_rows, compared.masked_rows) != (expected, expected):
            raise AssertionError(f"{compared.scanned_rows} rows to scan, not {expected}")
        found.setdefault("peak", _highest())  # of the cold one alone
    print(json.dumps(found))


def _highest() -> float:
    """Return the highest resident memory so far, MB; `getrusage` would tell the parent's, too."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("/proc/self/status has no VmHWM")


def synthesize(folder: Path) -> None:
    """Create a table of two snapshots, of which the second has one manifest with another file."""
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    schema = pa.schema([("id", pa.int64()), ("embedding", pa.list_(pa.float32()))])
    catalog = load_catalog(lakehouse.CATALOG)
    catalog.create_namespace_if_not_exists("synthetic")
    table = catalog.create_table(
        "synthetic.files", schema=schema, properties={"format-version": "2"}
    )
    names = [
        [f"part-{manifest:03}-{file:05}" for file in range(FILES_PER_MANIFEST)]
        for manifest in range(MANIFESTS)
    ]
    written = [_manifest(table, one, number, 1) for number, one in enumerate(names)]
    _snapshot(table, written, None, 1)
    _cover(table, [name for one in names for name in one], folder / COVERAGE)
    table.refresh()
    changed = _manifest(table, [*names[0][1:], "part-new"], MANIFESTS, 2)
    _snapshot(table, [changed, *table.current_snapshot().manifests(table.io)[1:]], 1, 2)  # type: ignore[union-attr]


def _manifest(table: "Table", names: list[str], number: int, snapshot: int) -> object:
    """Write a manifest; files named `part-new` are of the snapshot, all others of the first."""
    from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, write_manifest

    output = table.io.new_output(f"{table.location()}/metadata/manifest-{number:03}.avro")
    with write_manifest(2, table.spec(), table.schema(), output, snapshot, "deflate") as writer:
        for name in names:
            added = 2 if name == "part-new" else 1
            writer.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED
                    if added == snapshot
                    else ManifestEntryStatus.EXISTING,
                    snapshot_id=added,
                    sequence_number=added,
                    file_sequence_number=added,
                    data_file=_data_file(table.location(), name),
                )
            )
    return writer.to_manifest_file()


def _data_file(location: str, name: str) -> "DataFile":
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{location}/data/{name}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=ROWS,
        file_size_in_bytes=4_000_000,
        column_sizes={1: 80_000, 3: 3_900_000},
        value_counts={1: ROWS, 3: 100 * ROWS},
        null_value_counts={1: 0, 3: 0},
        nan_value_counts={3: 0},
        lower_bounds={1: bytes(8), 3: bytes(4)},
        upper_bounds={1: b"\x7f" * 8, 3: b"\x7f" * 4},
        split_offsets=[4],
        spec_id=0,
    )


def _snapshot(table: "Table", manifests: list, parent: int | None, number: int) -> None:  # type: ignore[type-arg]
    from pyiceberg.manifest import write_manifest_list
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary
    from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

    path = f"{table.location()}/metadata/snap-{number}.avro"
    output = table.io.new_output(path)
    with write_manifest_list(2, output, number, parent, number, "deflate") as writer:
        writer.add_manifests(manifests)
    snapshot = Snapshot(
        snapshot_id=number,
        parent_snapshot_id=parent,
        sequence_number=number,
        timestamp_ms=table.metadata.last_updated_ms + 1,
        manifest_list=path,
        summary=Summary(Operation.APPEND),
        schema_id=table.schema().schema_id,
    )
    head = SetSnapshotRefUpdate(  # type: ignore[call-arg]  # the others are optional
        ref_name="main", type="branch", snapshot_id=number
    )
    table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot), head))


def _cover(table: "Table", names: list[str], path: Path) -> None:
    """Write the coverage of the first snapshot, as an index published on it would."""
    from pyroaring import BitMap

    from puffin_ann.blobs.coverage import Coverage, CoveredFile, encode

    files = tuple(
        CoveredFile(number, f"data/{name}.parquet", 4_000_000, 1, ROWS, (ROWS,), BitMap(), BitMap())
        for number, name in enumerate(names)
    )
    path.write_bytes(encode(Coverage(1, files, ())))


if __name__ == "__main__":
    main(*sys.argv[1:])
