"""Publications of a file that is none of ours, and catalogs whose commits misbehave."""

from pathlib import Path
from typing import ClassVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table

from puffin_ann.lake.commit.attempt import Published, Request
from puffin_ann.lake.commit.commit_index_file import commit_index_file
from puffin_ann.lake.metadata.own_tags import own_tags
from tests.support.lake import tables

CONTENT = b"PFA1" + bytes(60)


def head(table: Table) -> int:
    return table.refresh().current_snapshot().snapshot_id


def put(table: Table, name: str = "index.puffin") -> str:
    path = table.location_provider().new_metadata_location(name)
    with table.io.new_output(path).create(overwrite=True) as out:
        out.write(CONTENT)
    return path


def send(table: Table, *, run: str = "run-1", expected: int | None = None, **changes) -> Published:
    """Publish under a tag, or as `changes` say."""
    at = head(table) if expected is None else expected
    arguments = {
        "expected_head": at,
        "base_snapshot_id": at,
        "path": put(table, f"{run}.puffin"),
        "file_size": len(CONTENT),
        "footer_size": 28,
        "summary": {"ann.words.run-id": run, "ann.words.vectors": "30"},
        "mode": "tag",
        "tag": f"puffin_ann_words_{run.replace('-', '_')}",
        **changes,
    }
    return commit_index_file(table, Request(**arguments))


def is_published(table: Table, published: Published) -> bool:
    """Tell whether a tag of ours holds what was published, and nothing came upon main."""
    table.refresh()
    return published.snapshot_id in own_tags(table) and published.snapshot_id not in {
        entry.snapshot_id for entry in table.history()
    }


class Faulty(SqlCatalog):
    """A catalog whose next commits misbehave: each fault is a function that is given the commit."""

    faults: ClassVar[list] = []

    def commit_table(self, table, requirements, updates) -> CommitTableResponse:
        def commit() -> CommitTableResponse:
            return super(Faulty, self).commit_table(table, requirements, updates)

        return self.faults.pop(0)(commit) if self.faults else commit()


def lost_reply(commit):
    commit()
    raise ConnectionError("connection reset after the request")


def lost_request(commit):
    raise ConnectionError("connection reset before the request")


def other_handle(table: Table, tmp_path: Path) -> Table:
    return tables.open_catalog(tmp_path).load_table(table.name())


def race(table: Table, tmp_path: Path, change) -> None:
    """Change the table by another handle between our look at it and our commit."""

    def fault(commit):
        change(other_handle(table, tmp_path))
        return commit()

    table.catalog.faults = [fault]


def manifest_lists(folder: Path) -> list[Path]:
    return list((folder / "warehouse").rglob("snap-*.avro"))


def unreachable(*_: object) -> Table:
    raise ConnectionError("refused")
