"""PyIceberg with what it lacks: it reads, and rewrites, tables whose rows are deleted by equality.

So it stays the judge of histories that such deletes befall. The library reads tables by itself.
"""

from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import FileIO, pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.table import FileScanTask, ManifestGroupPlanner


def read_equality_deletes(patch: pytest.MonkeyPatch) -> None:
    """Have PyIceberg apply equality deletes, in tables without partitions."""
    plan_files = ManifestGroupPlanner.plan_files
    read_deletes = pyarrow._read_all_delete_files

    def plan(
        planner: ManifestGroupPlanner,
        manifests: Iterable[ManifestFile],
        wanted: Callable[[ManifestEntry], bool] = lambda _: True,
    ) -> list[FileScanTask]:
        manifests = list(manifests)
        numbers, deletes = {}, []
        for entries in planner.plan_manifest_entries(manifests):
            for entry in filter(wanted, entries):
                if _is_by_equality(entry.data_file):
                    assert not len(entry.data_file.partition)
                    deletes.append(entry)
                else:
                    numbers[entry.data_file.file_path] = entry.sequence_number
        others = plan_files(
            planner,
            manifests,
            lambda entry: wanted(entry) and not _is_by_equality(entry.data_file),
        )
        for task in others:
            # Rows of the same commit stay, as those of later ones do.
            number = numbers[task.file.file_path]
            task.delete_files |= {e.data_file for e in deletes if e.sequence_number > number}
        return others

    def read(io: FileIO, tasks: Iterable[FileScanTask]) -> dict[str, list[pa.ChunkedArray]]:
        tasks = list(tasks)
        by_position = [
            FileScanTask(task.file, {f for f in task.delete_files if not _is_by_equality(f)})
            for task in tasks
        ]
        found = read_deletes(io, by_position)
        for task in tasks:
            for file in task.delete_files:
                if _is_by_equality(file):
                    places = pa.array(_equal_rows(io, task.file, file), pa.int64())
                    found.setdefault(task.file.file_path, []).append(pa.chunked_array([places]))
        return found

    patch.setattr(ManifestGroupPlanner, "plan_files", plan)
    patch.setattr(pyarrow, "_read_all_delete_files", read)


def _is_by_equality(file: DataFile) -> bool:
    return file.content == DataFileContent.EQUALITY_DELETES


def _equal_rows(io: FileIO, data: DataFile, deletes: DataFile) -> list[int]:
    """Return the positions of rows that equal a row of deletes; null equals null."""
    keys = set(_values(io, deletes.file_path, deletes.equality_ids))
    rows = _values(io, data.file_path, deletes.equality_ids)
    return [place for place, row in enumerate(rows) if row in keys]


def _values(io: FileIO, path: str, field_ids: Iterable[int]) -> list[tuple]:
    """Return the rows of a file, of the columns with these field ids; older files lack some."""
    with io.new_input(path).open() as stream:
        data = pq.read_table(stream)
    names = {int(field.metadata[b"PARQUET:field_id"]): field.name for field in data.schema}
    columns = [
        data[names[number]].to_pylist() if number in names else [None] * len(data)
        for number in sorted(field_ids)
    ]
    return list(zip(*columns, strict=True))
