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
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import Table

MANIFESTS = 100
FILES_PER_MANIFEST = 1000
ROWS = 10_000
TABLE = f"{lakehouse.CATALOG}.synthetic.files"
INDEX = "synthetic"
CASES = {"cold": (3, 0), "changed": (2, ROWS)}
"""By case: the snapshot compared with an index on the first, and rows to scan and to mask."""


def measure(rounds: int) -> Result:
    """Write manifests of files that do not exist, then compare in fresh processes."""
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        lakehouse.configure(folder)
        synthesize(folder)
        runs = [{case: _fresh(case) for case in CASES} for _ in range(rounds)]
    cold, changed = (
        {key: median(run[case][key] for run in runs) for key in runs[0][case]} for case in CASES
    )
    count = f"{MANIFESTS * FILES_PER_MANIFEST:,} data files"
    what = f"live files of a snapshot and their difference to what an index covers, {count}"
    return Result(
        family="diff",
        rows=[
            Row(
                key="diff-cold",
                what=f"{what}, every manifest read, fresh process",
                ours=f"{cold['seconds']:.2f} s",
                theirs="–",
                measured=cold["seconds"],
                least=5.0,
                aim=5.0,
                below=True,
                unit="s",
                note=f"{MANIFESTS} synthetic manifests with statistics of two columns, on local "
                "disk, all rewritten since the index was built; loading the table and reading the "
                "index's coverage counted, imports not",
            ),
            Row(
                key="diff-memory",
                what=f"the same: peak memory of the whole process, {count}",
                ours=f"{cold['peak']:.0f} MB",
                theirs=f"{cold['first']:.0f} MB after the imports",
                measured=cold["peak"],
                least=400,
                aim=400,
                below=True,
                unit="MB",
            ),
            Row(
                key="diff-changed",
                what=f"the same, one manifest of {MANIFESTS} changed since the index was built, "
                "fresh process",
                ours=f"{changed['seconds']:.2f} s",
                theirs=f"{cold['seconds']:.2f} s with every manifest read",
                measured=changed["seconds"],
                least=0.3,
                aim=0.3,
                below=True,
                unit="s",
                note=f"{changed['peak']:.0f} MB at most",
            ),
        ],
    )


def _fresh(case: str) -> dict[str, float]:
    """Measure in a process of its own; returns seconds, and megabytes of resident memory."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.diff", case],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    if done.returncode:
        raise RuntimeError(f"the comparison failed: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(case: str) -> None:
    """Compare a snapshot of the synthetic table with the index on its first, as a search does."""
    # Loaded later, they would be counted.
    import pyiceberg.catalog.sql
    import pyiceberg.io.pyarrow  # noqa: F401

    from puffin_ann.lake.catalog.tables import load_table
    from puffin_ann.search.version.index_version import load_version
    from puffin_ann.search.version.snapshot_view import live_state, view_of

    snapshot, expected = CASES[case]
    first = _highest()
    began = time.perf_counter()
    table = load_table(TABLE)
    version = load_version(table.io, _index_path(table), INDEX)
    if version is None:
        raise AssertionError("the index is not in its file")
    view = view_of(table, version, live_state(table, snapshot))
    seconds = time.perf_counter() - began
    if (view.rows_to_scan, view.rows_masked) != (expected, expected):
        raise AssertionError(f"{view.rows_to_scan} rows to scan, not {expected}")
    print(json.dumps({"seconds": seconds, "first": first, "peak": _highest()}))


def _highest() -> float:
    """Return the highest resident memory so far, MB; `getrusage` would tell the parent's, too."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("/proc/self/status has no VmHWM")


def synthesize(folder: Path) -> None:
    """Create a table of three snapshots, and an index on the first.

    The second has one manifest with another file, the third the files of the first in manifests
    written again.
    """
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
    table.refresh()
    first = table.current_snapshot()
    listed = first.manifests(table.io) if first else []
    _cover(
        table,
        [name for group in names for name in group],
        [manifest.manifest_path for manifest in listed],
    )
    changed = _manifest(table, [*names[0][1:], "part-new"], MANIFESTS, 2)
    _snapshot(table, [changed, *listed[1:]], 1, 2)
    table.refresh()
    again = [_manifest(table, one, 2 * MANIFESTS + at, 3) for at, one in enumerate(names)]
    _snapshot(table, again, 2, 3)


def _manifest(table: "Table", names: list[str], number: int, snapshot: int) -> "ManifestFile":
    """Write a manifest; files named `part-new` are of the second snapshot, others of the first."""
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


def _snapshot(
    table: "Table", manifests: "list[ManifestFile]", parent: int | None, number: int
) -> None:
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
    head = SetSnapshotRefUpdate.model_validate(
        {"ref-name": "main", "type": "branch", "snapshot-id": number}
    )
    table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot), head))


def _index_path(table: "Table") -> str:
    return f"{table.location()}/metadata/synthetic.puffin"


def _cover(table: "Table", names: list[str], manifests: list[str]) -> None:
    """Write an index on the first snapshot, as a build would, but that its shard is not there."""
    import numpy as np
    from pyroaring import BitMap

    from puffin_ann.blobs.version import coverage, routing
    from puffin_ann.blobs.version.coverage import Coverage, CoveredFile
    from puffin_ann.blobs.version.partitions import Partitions
    from puffin_ann.blobs.version.routing import Routing, ShardEntry
    from puffin_ann.puffin.writer import PuffinWriter

    files = tuple(
        CoveredFile(number, f"data/{name}.parquet", 4_000_000, 1, ROWS, (ROWS,), BitMap(), BitMap())
        for number, name in enumerate(names)
    )
    rows = len(files) * ROWS
    route = Routing(
        metric="l2",
        algorithm="vamana",
        dimension=4,
        cells=Partitions(
            metric="l2",
            dimension=4,
            centroids=np.zeros((1, 4), np.float32),
            shards=np.zeros(1, np.uint32),
            rows=np.full(1, rows, np.uint64),
            radii=np.ones(1, np.float32),
        ),
        norm_bound=0.0,
        shards=(ShardEntry(0, "", rows, 1, 0, "graph"),),
        search_width=64,
        probe_partitions=1,
    )
    blobs = {
        routing.TYPE: routing.encode(route),
        coverage.TYPE: coverage.encode(Coverage(1, files, tuple(manifests))),
    }
    with table.io.new_output(_index_path(table)).create() as out:
        writer = PuffinWriter(out)
        for kind, data in blobs.items():
            writer.add(
                kind,
                data,
                fields=[2],
                snapshot_id=1,
                sequence_number=1,
                properties={"index": INDEX},
                codec="zstd",
            )
        writer.finish({})


if __name__ == "__main__":
    main(*sys.argv[1:])
