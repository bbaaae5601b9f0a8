"""A catalog in an SQLite file, from which a table is loaded without an engine.

PyIceberg asks SQLite through SQLAlchemy, which takes a fifth of a second to import: more than a
search and its kernels. Where a metadata file is, one row says. Whatever else is asked, and whatever
is not as expected, PyIceberg's own catalog answers.
"""

import sqlite3
from abc import update_abstractmethods
from collections.abc import Mapping
from contextlib import closing
from functools import cached_property
from typing import Any
from urllib.parse import quote

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

SCHEME = "sqlite:///"
SECONDS = 5.0
"""So long a lock of the file is waited for before PyIceberg's catalog is asked."""

_KNOWN = frozenset(("uri", "warehouse", "type"))
"""Properties beside those of a store: none of them changes how the file is read."""


def path_of(properties: Mapping[str, Any]) -> str | None:
    """Return the path of a catalog's SQLite file; None if it is elsewhere, or has options.

    None, too, if a sign in it may stand for another: SQLAlchemy takes `%20` for a space since 2.1.

    Args:
        properties: of the catalog, as PyIceberg's configuration has them.
    """
    uri = str(properties.get("uri", ""))
    path = uri.removeprefix(SCHEME)
    is_a_path = bool(path) and not path.startswith((":", "file:")) and not {"?", "%"} & {*path}
    if not uri.startswith(SCHEME) or not is_a_path:
        return None
    is_sql = str(properties.get("type") or "sql").lower() == "sql"
    is_plain = all(name in _KNOWN or name.startswith(("s3.", "client.")) for name in properties)
    return path if is_sql and is_plain else None


class SqliteCatalog(MetastoreCatalog):
    """A catalog in an SQLite file: PyIceberg's own, made when it is first needed.

    Args:
        name: of the catalog.
        properties: of it; `path_of` knows its file.
    """

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        super().__init__(name, **properties)

    @cached_property
    def whole(self) -> Catalog:
        """PyIceberg's catalog."""
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog(self.name, **self.properties)

    def load_table(self, identifier: Any) -> Table:
        """Return a table; raises as PyIceberg's catalog does."""
        location = self._metadata_location(identifier)
        if location is None:
            return self.whole.load_table(identifier)
        io = load_file_io(self.properties, location)
        metadata = FromInputFile.table_metadata(io.new_input(location))
        return Table(
            identifier=Catalog.identifier_to_tuple(identifier),
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(metadata.properties, location),
            catalog=self,
        )

    def close(self) -> None:
        """Let go of connections."""
        if "whole" in vars(self):
            self.whole.close()

    def __getattr__(self, name: str) -> Any:
        """Return what only PyIceberg's catalog has, such as its engine."""
        if name.startswith("_") or name in ("name", "properties"):  # as while it is unpickled
            raise AttributeError(name)
        return getattr(self.whole, name)

    def _metadata_location(self, identifier: Any) -> str | None:
        """Return where a table's metadata is; None if there is no such row, or it does not say."""
        path = path_of(self.properties)
        if path is None:
            return None
        wanted = (
            self.name,
            Catalog.namespace_to_string(Catalog.namespace_from(identifier)),
            Catalog.table_name_from(identifier),
        )
        try:
            address = f"file:{quote(path)}?mode=ro"
            with closing(sqlite3.connect(address, timeout=SECONDS, uri=True)) as connection:
                connection.row_factory = sqlite3.Row
                row = connection.execute(
                    "SELECT * FROM iceberg_tables"
                    " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?",
                    wanted,
                ).fetchone()
        except sqlite3.Error:
            return None
        found = {} if row is None else dict(row)
        # Java's and Rust's clients keep views there, too.
        is_table = found.get("iceberg_type") in (None, "TABLE")
        location = found.get("metadata_location") if is_table else None
        return location if isinstance(location, str) and location else None


def _handed_on(name: str) -> Any:
    def ask(self: SqliteCatalog, *arguments: Any, **named: Any) -> Any:
        return getattr(self.whole, name)(*arguments, **named)

    ask.__name__ = name
    return ask


_ABSTRACT = frozenset(MetastoreCatalog.__abstractmethods__)
for _name in _ABSTRACT - vars(SqliteCatalog).keys():
    setattr(SqliteCatalog, _name, _handed_on(_name))
update_abstractmethods(SqliteCatalog)  # type: ignore[type-abstract]
