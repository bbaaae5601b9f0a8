"""Tables whose rows have row ids, as engines write them, and some that break the rules.

PyIceberg cannot commit to tables of format version 3. So these are of version 2, with manifest
lists and data files as version 3 has them: the library is told to take them for what they are.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT, Record

ROW_ID, LAST_UPDATED = 2147483540, 2147483539
_numbers = itertools.count()

Lineage = tuple[int, int]
"""Row id, and the sequence number of the commit that changed the row last."""


class _ReplacedFiles(_OverwriteFiles):
    """What an overwrite does, said to change no row."""

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        # PyIceberg adds totals up for the operations that it has, of which `replace` is none.
        found = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **found.additional_properties)


@dataclass
class LineageTable:
    """A table with a column `id`, by which the row of a row id is known here.

    Attributes:
        table: the table.
        next_row_id: as a table of version 3 has it.
        first_row_ids: by sequence number of the commit that added a file; each adds one at most.
        lineage: of the live rows, by id.
        before: by snapshot, what `lineage` was then.
    """

    table: Table
    row_group_rows: int = 7
    next_row_id: int = 0
    first_row_ids: dict[int, int] = field(default_factory=dict)
    lineage: dict[int, Lineage] = field(default_factory=dict)
    before: dict[int, dict[int, Lineage]] = field(default_factory=dict)

    def append(self, rows: pa.Table, imported: Mapping[int, Lineage] | None = None) -> None:
        """Add a file of new rows; of those imported, it holds a lineage, as of another table."""
        stored = None if imported is None else [imported.get(i) for i in _ids(rows)]
        self._commit([], rows, stored)

    def overwrite(
        self, files: Sequence[DataFile], rows: pa.Table, imported: Mapping[int, Lineage]
    ) -> None:
        """Replace files by one of other rows, which holds a lineage, as of another table."""
        self._commit(files, rows, [imported.get(i) for i in _ids(rows)])

    def compact(self, files: Sequence[DataFile], rows: pa.Table) -> None:
        """Replace files by one with their rows, as a compaction does."""
        stored = [self.lineage[i] for i in _ids(rows)]
        self._commit(files, rows, stored, is_rewrite=True)

    def update(
        self, files: Sequence[DataFile], rows: pa.Table, changed: Sequence[int] = ()
    ) -> None:
        """Replace files by one with rows of them, of which some were changed, by id."""
        stored = [
            (self.lineage[i][0], None) if i in set(changed) else self.lineage[i] for i in _ids(rows)
        ]
        self._commit(files, rows, stored)

    def add_changed(self, rows: pa.Table, changed: Mapping[int, Lineage]) -> None:
        """Add a file of rows that were changed and deleted elsewhere: by id, what they were."""
        self._commit([], rows, [(changed[i][0], None) for i in _ids(rows)])

    def compact_without_lineage(self, files: Sequence[DataFile], rows: pa.Table) -> None:
        """Replace files, as an engine does that knows nothing of row ids: rows get new ones."""
        self._commit(files, rows, None, is_rewrite=True)

    def commit_deletes(self, rows: Sequence[int]) -> None:
        """Note that rows were deleted by position, by ids; and number the rows again."""
        self._settle({i: value for i, value in self.lineage.items() if i not in set(rows)})

    def roll_back(self, snapshot_id: int) -> None:
        """Have an older snapshot for the current one; row ids and numbers go on."""
        self.table.manage_snapshots().create_branch(
            snapshot_id=snapshot_id, branch_name=f"b{len(self.table.refs())}"
        ).commit()
        self.table.manage_snapshots().set_current_snapshot(snapshot_id=snapshot_id).commit()
        self.table.refresh()
        self.lineage = dict(self.before[snapshot_id])

    def files(self) -> list[DataFile]:
        """The live data files, in order of their paths."""
        return sorted(
            (task.file for task in self.table.scan().plan_files()), key=lambda file: file.file_path
        )

    def rows_of(self, files: Sequence[DataFile]) -> pa.Table:
        """The live rows of some files, in an order of their own."""
        wanted = {file.file_path for file in files}
        scan = self.table.scan()
        tasks = [task for task in scan.plan_files() if task.file.file_path in wanted]
        read = ArrowScan(self.table.metadata, self.table.io, scan.projection(), AlwaysTrue())
        return read.to_table(tasks)

    def _commit(
        self,
        gone: Sequence[DataFile],
        rows: pa.Table,
        stored: Sequence[tuple[int, int | None] | None] | None,
        *,
        is_rewrite: bool = False,
    ) -> None:
        gone_ids = set(_ids(self.rows_of(gone))) if gone else set()
        new = [self._write(rows, stored)] if len(rows) else []
        with self.table.transaction() as tx:
            update = tx.update_snapshot()
            change = update.overwrite() if gone else update.fast_append()
            if is_rewrite:
                change = _ReplacedFiles(Operation.OVERWRITE, tx, self.table.io, branch=MAIN_BRANCH)
            with change as snapshot:
                for file in gone:
                    snapshot.delete_data_file(file)
                for file in new:
                    snapshot.append_data_file(file)
        self.table.refresh()
        number = self.table.current_snapshot().sequence_number
        first, kept = self.next_row_id, stored or [None] * len(rows)
        self.next_row_id += len(rows)
        self.first_row_ids[number] = first
        lineage = {i: value for i, value in self.lineage.items() if i not in gone_ids}
        for place, (i, value) in enumerate(zip(_ids(rows), kept, strict=True)):
            row_id, updated = value if value is not None else (first + place, None)
            lineage[i] = (row_id, number if updated is None else updated)
        self._settle(lineage)

    def _settle(self, lineage: dict[int, Lineage]) -> None:
        self.table.refresh()
        self.lineage = lineage
        self._number_rows()
        self.before[self.table.current_snapshot().snapshot_id] = dict(lineage)

    def _number_rows(self) -> None:
        """Write the manifest list again, with the first row id of each manifest of data."""
        snapshot = self.table.current_snapshot()
        manifests = snapshot.manifests(self.table.io)
        schema = MANIFEST_LIST_FILE_SCHEMAS[3]
        output = AvroOutputFile(
            output_file=self.table.io.new_output(snapshot.manifest_list),
            file_schema=schema,
            record_schema=schema,
            schema_name="manifest_file",
            metadata={"format-version": "3", "avro.codec": "null"},
        )
        with output as writer:
            writer.write_block(
                [
                    Record(
                        *manifest._data[:15],
                        self.first_row_ids.get(manifest.sequence_number)
                        if manifest.content == ManifestContent.DATA
                        else None,
                    )
                    for manifest in manifests
                ]
            )

    def _write(
        self, rows: pa.Table, stored: Sequence[tuple[int, int | None] | None] | None
    ) -> DataFile:
        schema = schema_to_pyarrow(self.table.schema(), include_field_ids=True)
        data = rows.select(schema.names).cast(schema)
        if stored is not None:
            for name, number, place in (
                ("_row_id", ROW_ID, 0),
                ("_last_updated_sequence_number", LAST_UPDATED, 1),
            ):
                values = [None if value is None else value[place] for value in stored]
                at = pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})
                data = data.append_column(at, pa.array(values, pa.int64()))
        path = f"{self.table.location()}/data/rows-{next(_numbers):06d}.parquet"
        with self.table.io.new_output(path).create() as out:
            pq.write_table(data, out, row_group_size=self.row_group_rows)
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=len(rows),
            file_size_in_bytes=len(self.table.io.new_input(path)),
            spec_id=self.table.spec().spec_id,
        )


def _ids(rows: pa.Table) -> list[int]:
    return rows.column("id").to_pylist()
