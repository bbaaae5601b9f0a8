"""The blobs of published files that a new file is made of, or that a new version names."""

import logging
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager

from pyiceberg.table import Table

from puffin_ann.blobs.changes import coverage_changes as coverage_changes_blob
from puffin_ann.blobs.version import directory as directory_blob
from puffin_ann.blobs.version.routing import TYPE as ROUTING
from puffin_ann.errors import FormatError, StoreRefusedError
from puffin_ann.lake.metadata.own_tags import held_files
from puffin_ann.lake.metadata.registered import find_registered
from puffin_ann.lake.store.assemble.object_plan import ObjectPlan
from puffin_ann.lifecycle.publish.carried_blobs import Blob, is_foreign, open_pinned
from puffin_ann.lifecycle.publish.layers import Layers, layers_of
from puffin_ann.lifecycle.versions.inventory import IndexFile
from puffin_ann.search.version.index_files import BlobPlace, VersionFiles, directory_in
from puffin_ann.settings import settings

log = logging.getLogger("puffin_ann")

_OF_ITS_OWN = frozenset({ROUTING, coverage_changes_blob.TYPE})
"""Types of the blobs that each version has in its own file, beside the directory."""


def live_blobs(
    table: Table, live: Mapping[str, IndexFile], object_plan: ObjectPlan
) -> Iterator[Blob]:
    """Yield the blobs of indexes, whichever files of their versions they are in."""
    for index, file in live.items():
        with _opened(table, index, file, object_plan) as files:
            for place in _places(files):
                yield files.open(place).reader, place.metadata


def layered_blobs(
    table: Table,
    index: str,
    file: IndexFile,
    object_plan: ObjectPlan,
    left_out: Set[str] = frozenset(),
) -> tuple[list[Blob], Layers]:
    """Return the blobs that a version of what is published has itself, and those it names.

    Args:
        table: as it was loaded.
        index: name of the index.
        file: that has its version.
        object_plan: of the new file.
        left_out: types of blobs that the new version has of its own.
    """
    with _opened(table, index, file, object_plan) as files:
        places = [place for place in _places(files) if place.metadata.type not in left_out]
        own = [place for place in places if place.metadata.type in _OF_ITS_OWN]
        rest = [place for place in places if place.metadata.type not in _OF_ITS_OWN]
        layers = layers_of(rest, held_files(table), settings().whole_file_bytes)
        copied = [*own, *layers.copied]
        return [(files.open(place).reader, place.metadata) for place in copied], layers


@contextmanager
def _opened(
    table: Table, index: str, file: IndexFile, object_plan: ObjectPlan
) -> Iterator[VersionFiles]:
    """Open the files of an index's version; ranges of them are copied after they are closed."""
    with open_pinned(table, object_plan, file.path, file.bytes) as reader:
        directory = directory_in(reader, index)
        (field_id,) = reader.only(ROUTING, index=index).fields
        with VersionFiles(
            table.io, reader.name, index, directory, field_id, own=reader, opening=object_plan.pin
        ) as files:
            yield files


def _places(files: VersionFiles) -> Iterator[BlobPlace]:
    """Yield where the blobs are that a new file may take as they are."""
    for place in files.every_place():
        if place.metadata.type != directory_blob.TYPE and not is_foreign(place.metadata):
            yield place


def foreign_blobs(
    table: Table, head: int, object_plan: ObjectPlan
) -> tuple[frozenset[str], list[Blob]]:
    """Return the newest file that has blobs of others, and those; the head's file comes first."""
    entries = sorted(find_registered(table), key=lambda entry: head not in entry.snapshot_ids)
    for entry in entries:
        path = entry.path
        try:
            with open_pinned(table, object_plan, path, entry.file_size) as reader:
                foreign = [blob for blob in reader.metadata.blobs if is_foreign(blob)]
        except (FileNotFoundError, FormatError, StoreRefusedError) as error:
            log.warning("file %s of others cannot be read: %s", path, error)
            continue
        if foreign:
            return frozenset({path}), [(reader, blob) for blob in foreign]
    return frozenset(), []
