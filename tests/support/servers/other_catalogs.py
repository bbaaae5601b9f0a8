"""One table in two catalogs, catalogs restored from a backup, and commits that lose a race."""

import json
import os
import shlex
import uuid
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from puffin_ann import open_index
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.moments import now_ms
from tests.support.lake import table_events
from tests.support.lifecycle import builds

NAME = "demo.words"


def later(hours: float = 25) -> int:
    return now_ms() + int(hours * table_events.HOUR_MS)


def advised(report) -> list[str]:
    """Return the metadata files that a clean-up says how to have it forget."""
    commands = [note.partition("run: ")[2] for note in report.notes]
    return sorted({name for command in commands for name in shlex.split(command)[4::2]})


def catalog_beside(known_catalogs, folder: Path, name: str, **properties: str):
    """Another catalog over the same warehouse."""
    known_catalogs(
        name,
        type="sql",
        uri=f"sqlite:///{folder}/{name}.db",
        **{"warehouse": f"file://{folder}/warehouse", **properties},
    )
    catalog = load_catalog(name)
    catalog.create_namespace_if_not_exists("demo")
    return catalog


def register(catalog, metadata_location: str) -> Table:
    return catalog.register_table(NAME, metadata_location)


def commit(table: Table, note: str) -> None:
    """A commit that changes nothing but a property."""
    table._do_commit(*_property_update(table, note))


def publish(table: Table, run: str, **declared) -> str:
    """Publish a version through the table's own catalog; returns its file."""
    declaration = builds.declaration(table=name_of(table), **declared)
    assert builds.build(declaration, run, {"force": True}).action == "build"
    return table_events.newest(table)


def publish_versions(table: Table, *runs: str, **declared) -> list[str]:
    """Publish a version a run, each with some more rows to cover; returns their files."""
    paths = []
    for run in runs:
        start = 1000 + 10 * len(table.refresh().snapshots())
        table.append(builds.rows(range(start, start + 3)))
        paths.append(publish(table, run, **declared))
    return paths


def assert_whole(table: Table) -> None:
    """The current snapshot can be read, and the published index answers exactly."""
    assert table.refresh().scan().to_arrow().num_rows > 0
    for snapshot in table.snapshots():
        assert table.io.new_input(snapshot.manifest_list).exists()
    for entry in table.metadata.statistics:
        assert table.io.new_input(entry.statistics_path).exists(), entry.statistics_path
    index = open_index(table, builds.INDEX)
    builds.assert_answers(
        index, table, table.current_snapshot().snapshot_id, table_events.QUERIES, 4
    )


def lose_a_race(table: Table, note: str) -> str:
    """Commit while another writer does; returns the metadata file that is left of it."""
    left = []
    write = SqlCatalog._write_metadata

    def overtaken(metadata, io, metadata_path):
        write(metadata, io, metadata_path)
        if not left:
            left.append(metadata_path)
            commit(table.catalog.load_table(table.name()), f"{note} came second")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlCatalog, "_write_metadata", staticmethod(overtaken))
        with pytest.raises(CommitFailedException):
            table._do_commit(*_property_update(table, note))  # a transaction would try again
    table.refresh()
    return left[0]


def _property_update(table: Table, note: str):
    return (
        (SetPropertiesUpdate(updates={"note": note}),),
        (AssertTableUUID(uuid=table.metadata.table_uuid),),
    )


def rewritten(table: Table, **changes) -> str:
    """Write the table's metadata anew, with changes, beside it; returns the location."""
    document = json.loads(Path(local(table.metadata_location)).read_text())
    document.update({key.replace("_", "-"): value for key, value in changes.items()})
    path = f"{os.path.dirname(local(table.metadata_location))}/00099-{uuid.uuid4()}.metadata.json"
    Path(path).write_text(json.dumps(document))
    return f"file://{path}"


def local(location: str) -> str:
    return location.removeprefix("file://")


def going(report) -> dict[str, str]:
    return {orphan.location: orphan.kind for orphan in report.gone}


def kept(report) -> dict[str, str]:
    return {orphan.location: orphan.why for orphan in report.kept}


def foreign(found) -> list:
    """Return what a diagnosis tells of foreign metadata."""
    return [finding for finding in found.findings if finding.kind == "foreign"]
