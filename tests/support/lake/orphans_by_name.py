"""Orphan removal as Trino's and StarRocks' `remove_orphan_files` do it, by their sources.

They list the table's whole location, hidden names included, and remove every object whose base name
is that of nothing the metadata names: manifest lists, manifests, files of all snapshots, metadata
files of the log, statistics files. Glue's and S3 Tables' removal is, by their documents, no milder.
"""

from collections.abc import Iterable

from pyiceberg.table import Table


def named_by(table: Table) -> set[str]:
    """Base names of what a table's metadata names."""
    metadata = table.metadata
    named = {"version-hint.text", _base(table.metadata_location)}
    named |= {_base(entry.metadata_file) for entry in metadata.metadata_log}
    named |= {_base(entry.statistics_path) for entry in metadata.statistics}
    named |= {_base(entry.statistics_path) for entry in metadata.partition_statistics}
    for snapshot in table.snapshots():
        named.add(_base(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            named.add(_base(manifest.manifest_path))
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            named |= {_base(entry.data_file.file_path) for entry in entries}
    return named


def remove_by_name(table: Table, stored: Iterable[str]) -> set[str]:
    """Remove those of a table's stored files that it does not name; returns their locations."""
    named = named_by(table)
    gone = {file for file in stored if _base(file) not in named}
    for location in gone:
        table.io.delete(location)
    return gone


def remove_orphans_by_name(lake, table: str = "words") -> set[str]:
    """Remove what a table of a lake does not name, however new; returns its locations."""
    loaded = lake.load(table)
    return remove_by_name(loaded, lake.files(loaded))


def _base(location: str) -> str:
    return location.rsplit("/", 1)[-1]
