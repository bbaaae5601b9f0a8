"""What a published file carries over besides the index it is published for."""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata as ListedBlob

from puffin_ann.errors import FormatError, StoreRefusedError
from puffin_ann.lake.metadata.dropped import find_dropped
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lake.metadata.registered import Registered, find_registered
from puffin_ann.lake.store.assemble.object_plan import ObjectPlan
from puffin_ann.lake.store.objects import object_exists
from puffin_ann.lifecycle.versions.inventory import is_index_name
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.puffin.reader import BlobReader, PuffinReader
from puffin_ann.search.version.index_files import open_puffin
from puffin_ann.search.version.versions import index_names

log = logging.getLogger("puffin_ann")

OUR_PREFIX = "puffin-ann-"

LISTED_TYPES = frozenset({"apache-datasketches-theta-v1"})
"""Blob types listed in the table's metadata. PyIceberg cannot load a table whose metadata lists a
type it does not know, so our own are in the file's footer only."""

Blob = tuple[BlobReader, BlobMetadata]
"""A blob, and the file to copy it from; ranges are copied by an object plan, so that it may be
closed."""


@contextmanager
def open_pinned(
    table: Table, object_plan: ObjectPlan, path: str, length: int | None = None
) -> Iterator[PuffinReader]:
    """Open a Puffin file; the object plan is held to the state its footer was read in."""
    object_plan.pin(path)
    with open_puffin(table.io, path, length) as reader:
        yield reader


@dataclass
class CarriedBlobs:
    """What the table's registered files hold besides one index.

    What tags of ours hold stays where it is, and is not carried. Nor are older versions of that
    index: in a new file they would count as newer.

    Attributes:
        table: as it is now.
        index: the index that is published, and so not carried.
        base_snapshot_id: snapshot whose foreign blobs come first: in mode `statistics` the new file
            takes the place of the one that has them.
        object_plan: of the new file.
        files: once `blobs` has ended, the registered files of which everything is carried that
            no newer file has, that are gone, or that nobody can read.
        footers: then also, by path, readers of the registered files, which are closed.
    """

    table: Table
    index: str
    base_snapshot_id: int
    object_plan: ObjectPlan
    files: set[str] = field(default_factory=set)
    footers: dict[str, PuffinReader] = field(default_factory=dict)

    def blobs(self) -> Iterator[Blob]:
        """Yield each thing once: of another index its newest version, foreign blobs of one file.

        Foreign blobs are those of the newest file that has any; the file under the base snapshot,
        whose place the new one takes, counts as the newest.
        """
        readers = self._readable()
        by_base = sorted(
            readers, key=lambda opened: self.base_snapshot_id not in opened[0].snapshot_ids
        )
        foreign = next((entry for entry, reader, _ in by_base if _foreign_blobs(reader)), None)
        seen = {self.index}
        for entry, reader, names in readers:
            here = names - seen
            seen |= here
            if self._is_tagged(entry):
                continue
            for blob in reader.metadata.blobs:
                if is_foreign(blob):
                    wanted = entry is foreign
                else:
                    wanted = blob.properties.get("index", "") in here
                if wanted:
                    yield reader, blob

    def _readable(self) -> list[tuple[Registered, PuffinReader, set[str]]]:
        """Read the footers of the registered files, the newest first; note which are accounted for.

        With each come the names of its indexes, those left out that were dropped.

        Ranges are copied by the object plan, so that the readers may be closed.
        """
        found = []
        marks = find_dropped(self.table)
        for entry in find_registered(self.table):
            try:
                with open_pinned(
                    self.table, self.object_plan, entry.path, entry.file_size
                ) as reader:
                    found.append((entry, reader, index_names(reader, marks)))
                    self.footers[entry.path] = reader
            except (FileNotFoundError, FormatError, StoreRefusedError) as error:
                log.warning("publish: registered file %s cannot be read: %s", entry.path, error)
                if self._is_needed(entry):
                    continue
            self.files.add(entry.path)
        return found

    def _is_tagged(self, entry: Registered) -> bool:
        return bool(own_tags(self.table).keys() & set(entry.snapshot_ids))

    def _is_needed(self, entry: Registered) -> bool:
        """Tell whether a file that cannot be read has to keep its place."""
        if self._is_tagged(entry) or not object_exists(self.table.io, entry.path):
            return False
        return not self._is_corrupt(entry)

    def _is_corrupt(self, entry: Registered) -> bool:
        """Tell whether nobody can read a file of ours: it must not keep its place forever.

        A file of others may be readable for them.
        """
        if not is_index_name(entry.path):
            return False
        try:
            with open_puffin(self.table.io, entry.path, entry.file_size):
                return False
        except FormatError:
            return True
        except FileNotFoundError:
            return False


def _foreign_blobs(reader: PuffinReader) -> list[BlobMetadata]:
    return [blob for blob in reader.metadata.blobs if is_foreign(blob)]


def is_foreign(blob: BlobMetadata | ListedBlob) -> bool:
    """Tell whether a blob belongs to no index, such as the sketches of an optimizer."""
    return not blob.type.startswith(OUR_PREFIX)


def listed_blobs(blobs: Collection[BlobMetadata]) -> list[ListedBlob]:
    """Return the blobs of a file that the table's metadata may list."""
    return [
        ListedBlob.model_validate(
            {
                "type": blob.type,
                "snapshot-id": blob.snapshot_id,
                "sequence-number": blob.sequence_number,
                "fields": list(blob.fields),
                "properties": dict(blob.properties),
            }
        )
        for blob in blobs
        if blob.type in LISTED_TYPES and blob.fields
    ]
