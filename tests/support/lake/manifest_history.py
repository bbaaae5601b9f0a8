"""A table's history as manifests in memory: what writers do to them, without a byte of Avro."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from types import SimpleNamespace
from unittest.mock import patch

from pyroaring import BitMap

from puffin_ann.lake.read.files.live_files import DeleteFile, Listed, LiveFile
from puffin_ann.lake.read.files.manifests import Entry, FileContent, Manifest

ROWS = 6
SPECS = {0: [()], 1: [("a",), ("b",)]}
"""Partition specs by id: the values that their files have."""


@dataclass(frozen=True)
class Snapshot:
    data: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()


class ManifestHistory:
    """Snapshots of a table, newest last; every step adds one."""

    def __init__(self, *, specs: tuple[int, ...] = (0,), vectors: bool = False) -> None:
        self.specs, self.vectors = specs, vectors
        self.snapshots = [Snapshot()]
        self.listed: dict[str, Manifest] = {}
        self.entries: dict[str, tuple[Entry, ...]] = {}
        self.positions: dict[tuple[str, int | None], dict[str, set[int]]] = {}
        self.lost: set[str] = set()
        self._names = 0

    # What readers ask for.

    def at(self, number: int) -> Listed:
        """A snapshot, deletes first, as some writers list them."""
        snapshot = self.snapshots[number]
        specs = {
            number: SimpleNamespace(
                spec_id=number,
                fields=[SimpleNamespace(transform=None) for _ in range(len(values[0]))],
            )
            for number, values in SPECS.items()
        }
        table = SimpleNamespace(io=None, specs=lambda: specs)
        listed = [self.listed[manifest] for manifest in self.manifests(snapshot)]
        return Listed(table, "table", listed)

    def manifests(self, snapshot: Snapshot) -> tuple[str, ...]:
        return (*snapshot.deletes, *snapshot.data)

    @contextmanager
    def readable(self) -> Iterator[None]:
        """Have the library read from here."""
        with (
            patch("puffin_ann.lake.read.files.live_files.read_manifest", self._read),
            patch(
                "puffin_ann.lake.read.diff.manifest_diff.read_unlisted_manifest",
                self._read_unlisted,
            ),
            patch("puffin_ann.lake.read.diff.manifest_diff.deleted_positions", self.deleted),
        ):
            yield

    def deleted(self, _table: object, files: list[LiveFile]) -> dict[str, BitMap]:
        found = {
            file.path: BitMap(
                at
                for delete in file.deletes
                for at in self.positions[self._key(delete)].get(file.path, ())
                if at < file.rows
            )
            for file in files
        }
        return {path: positions for path, positions in found.items() if positions}

    def _key(self, delete: DeleteFile) -> tuple[str, int | None]:
        return (delete.path, delete.content_offset)

    def _read(self, _io: object, manifest: Manifest, **_: bool) -> list[Entry]:
        return list(self.entries[manifest.path])

    def _read_unlisted(self, _io: object, path: str) -> list[Entry]:
        if path in self.lost:
            raise FileNotFoundError(path)
        inherited = self.listed[path].sequence_number
        return [
            replace(entry, sequence_number=-1, file_sequence_number=-1, spec_id=-1)
            if entry.file_sequence_number == inherited
            else replace(entry, spec_id=-1)
            for entry in self.entries[path]
        ]

    # What writers do.

    @property
    def head(self) -> Snapshot:
        return self.snapshots[-1]

    @property
    def sequence_number(self) -> int:
        """Of the commit under way."""
        return len(self.snapshots)

    def append(self, random: Random) -> None:
        self._commit(data=(*self.head.data, self._new([self._file(random)])))

    def append_and_merge(self, random: Random) -> None:
        """As PyIceberg and Spark do when there are many small manifests."""
        merged = [manifest for manifest in self.head.data if random.random() < 0.5]
        entries = [entry for manifest in merged for entry in self.entries[manifest]]
        kept = [manifest for manifest in self.head.data if manifest not in merged]
        self._commit(data=(self._new([*entries, self._file(random)]), *kept))

    def overwrite(self, random: Random) -> None:
        gone = self._some(random)
        self._replace(gone, [self._file(random)])

    def delete(self, random: Random) -> None:
        self._replace(self._some(random), [])

    def compact(self, random: Random) -> None:
        """The new file keeps the data sequence number, so that later deletes still apply."""
        gone = self._some(random)
        number = max((entry.sequence_number for entry in gone), default=self.sequence_number)
        self._replace(gone, [replace(self._file(random), sequence_number=number)])

    def put_in_place(self, random: Random) -> None:
        """Another file takes the path of a file."""
        gone = self._some(random)
        self._replace(gone, [replace(self._file(random), path=entry.path) for entry in gone[:1]])

    def rewrite_manifests(self, random: Random) -> None:
        merged = [manifest for manifest in self.head.data if random.random() < 0.7]
        entries = [entry for manifest in merged for entry in self.entries[manifest]]
        random.shuffle(entries)
        half = len(entries) // 2
        new = [self._new(part) for part in (entries[:half], entries[half:]) if part]
        self._commit(
            data=(*(manifest for manifest in self.head.data if manifest not in merged), *new)
        )

    def rewrite_delete_manifests(self, random: Random) -> None:
        entries = [entry for delete in self.head.deletes for entry in self.entries[delete]]
        self._commit(deletes=(self._new(entries, deletes=True),) if entries else ())

    def delete_rows(self, random: Random) -> None:
        """One delete file (or vector) for one data file."""
        file = self._one(random)
        if file is None:
            return
        deleted = {at for at in range(file.rows) if random.random() < 0.4}
        old = [delete for delete in self._deletes_of(file.path) if delete.file_format == "PUFFIN"]
        if self.vectors:
            for delete in old:
                deleted |= self.positions[delete.path, delete.content_offset][file.path]
        new = self._delete({file.path: deleted}, file, named=True)
        self._redelete(old if self.vectors else [], [new])

    def delete_rows_belatedly(self, random: Random) -> None:
        """With the sequence number of an earlier commit, which some writers set."""
        if self.vectors:  # of which a data file has one only
            return
        file = self._one(random)
        if file is not None:
            new = self._delete({file.path: {0, 1}}, file, named=True)
            number = random.randrange(self.sequence_number)
            self._redelete([], [replace(new, sequence_number=number)])

    def append_and_delete(self, random: Random) -> None:
        """In one commit."""
        file = replace(self._file(random), rows=ROWS)
        new = self._delete({file.path: {0, 2}}, file, named=True)
        data, deletes = self._new([file]), self._new([new], deletes=True)
        self._commit((*self.head.data, data), (*self.head.deletes, deletes))

    def delete_rows_of_partition(self, random: Random) -> None:
        """One delete file for several data files of a partition."""
        file = self._one(random)
        if file is None or self.vectors:
            return self.delete_rows(random)
        near = [
            entry
            for entry in self._live()
            if (entry.spec_id, entry.partition) == (file.spec_id, file.partition)
        ]
        deleted = {
            entry.path: {at for at in range(ROWS) if random.random() < 0.3} for entry in near
        }
        return self._redelete(
            [], [self._delete(deleted, file, named=False, bounds=random.random() < 0.5)]
        )

    def merge_deletes(self, random: Random) -> None:
        """As `rewrite_position_delete_files`: those of one data file become one."""
        file = self._one(random)
        old = [] if file is None else self._deletes_of(file.path)
        if file is None or not old:
            return
        deleted: set[int] = set()
        for delete in old:
            if file.sequence_number <= delete.sequence_number:
                deleted |= self.positions[delete.path, delete.content_offset][file.path]
        number = max(delete.sequence_number for delete in old)
        new = self._delete({file.path: deleted}, file, named=True)
        self._redelete(old, [replace(new, sequence_number=number)])

    def drop_deletes(self, random: Random) -> None:
        """What no writer does: rows are live again."""
        self._commit(deletes=tuple(delete for delete in self.head.deletes if random.random() < 0.5))

    def delete_by_equality(self, random: Random) -> None:
        """Rows of all files, of which the delete reaches those of its partition that are older."""
        file = self._one(random)
        if file is not None:
            rows = {
                entry.path: {at for at in range(entry.rows) if random.random() < 0.4}
                for entry in self._live()
            }
            new = self._delete(rows, file, named=False, bounds=False)
            self.positions[new.path, None] = rows
            new = replace(
                new,
                content=FileContent.EQUALITY_DELETES,
                file_format="PARQUET",
                content_offset=None,
                equality_ids=(1,),
            )
            self._redelete([], [new])

    def roll_back(self, random: Random) -> None:
        self.snapshots.append(random.choice(self.snapshots))

    # How they do it.

    def _commit(
        self, data: tuple[str, ...] | None = None, deletes: tuple[str, ...] | None = None
    ) -> None:
        head = self.head
        self.snapshots.append(
            Snapshot(
                head.data if data is None else data, head.deletes if deletes is None else deletes
            )
        )

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}-{self._names:03}"

    def _new(self, entries: list[Entry], *, deletes: bool = False) -> str:
        name = self._name("manifest")
        self.entries[name] = tuple(entries)
        self.listed[name] = Manifest(
            name,
            deletes,
            self.sequence_number,
            entries[0].spec_id,
            None,
            len(entries),
            sum(entry.rows for entry in entries),
        )
        return name

    def _file(self, random: Random) -> Entry:
        spec_id = random.choice(self.specs)
        return Entry(
            content=FileContent.DATA,
            path=self._name("file"),
            file_format="PARQUET",
            partition=random.choice(SPECS[spec_id]),
            spec_id=spec_id,
            rows=random.randrange(ROWS + 1),
            size=random.randrange(3),
            sequence_number=self.sequence_number,
            file_sequence_number=self.sequence_number,
            encrypted=False,
            first_row_id=random.choice([None, 10]),
            referenced_data_file=None,
            content_offset=None,
            content_size=None,
            path_bounds=None,
        )

    def _live(self) -> list[Entry]:
        return [entry for manifest in self.head.data for entry in self.entries[manifest]]

    def _one(self, random: Random) -> Entry | None:
        live = self._live()
        return random.choice(live) if live else None

    def _some(self, random: Random) -> list[Entry]:
        return [entry for entry in self._live() if random.random() < 0.4]

    def _replace(self, gone: list[Entry], new: list[Entry]) -> None:
        """Manifests that list what is gone are written anew without it."""
        paths = {entry.path for entry in gone}
        data = []
        for manifest in self.head.data:
            kept = [entry for entry in self.entries[manifest] if entry.path not in paths]
            if len(kept) == len(self.entries[manifest]):
                data.append(manifest)
            elif kept:
                data.append(self._new(kept))
        self._commit(data=(*data, *([self._new(new)] if new else [])))

    def _deletes_of(self, path: str) -> list[Entry]:
        return [
            entry
            for delete in self.head.deletes
            for entry in self.entries[delete]
            if entry.referenced_data_file == path
        ]

    def _delete(
        self, deleted: dict[str, set[int]], file: Entry, *, named: bool, bounds: bool = True
    ) -> Entry:
        name = self._name("delete")
        offset = 4 if self.vectors else None
        self.positions[name, offset] = deleted
        return replace(
            file,
            content=FileContent.POSITION_DELETES,
            path=name,
            file_format="PUFFIN" if self.vectors else "PARQUET",
            rows=sum(map(len, deleted.values())),
            sequence_number=self.sequence_number,
            file_sequence_number=self.sequence_number,
            referenced_data_file=file.path if named else None,
            content_offset=offset,
            path_bounds=(min(deleted).encode(), max(deleted).encode())
            if deleted and bounds
            else None,
        )

    def _redelete(self, gone: list[Entry], new: list[Entry]) -> None:
        names = {entry.path for entry in gone}
        deletes = []
        for delete in self.head.deletes:
            kept = [entry for entry in self.entries[delete] if entry.path not in names]
            if len(kept) == len(self.entries[delete]):
                deletes.append(delete)
            elif kept:
                deletes.append(self._new(kept, deletes=True))
        self._commit(deletes=(*deletes, self._new(new, deletes=True)))


STEPS: dict[str, Callable[[ManifestHistory, Random], None]] = {
    step.__name__: step
    for step in (
        ManifestHistory.append,
        ManifestHistory.append_and_merge,
        ManifestHistory.overwrite,
        ManifestHistory.delete,
        ManifestHistory.compact,
        ManifestHistory.put_in_place,
        ManifestHistory.rewrite_manifests,
        ManifestHistory.rewrite_delete_manifests,
        ManifestHistory.delete_rows,
        ManifestHistory.delete_rows_belatedly,
        ManifestHistory.append_and_delete,
        ManifestHistory.delete_rows_of_partition,
        ManifestHistory.merge_deletes,
        ManifestHistory.drop_deletes,
        ManifestHistory.delete_by_equality,
        ManifestHistory.roll_back,
    )
}
