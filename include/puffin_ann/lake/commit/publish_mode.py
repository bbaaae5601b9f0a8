"""How a version is made known to a table: by a tag of ours where tags are kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.table import Table

from puffin_ann.errors import ConflictError, TagNotKeptError, UnsupportedTableError
from puffin_ann.lake.catalog.tables import name_of
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.moments import as_utc, now_ms

PublishMode = Literal["statistics", "tag"]
DeclaredMode = Literal["statistics", "tag", "auto"]

WRITABLE_VERSION = 2
"""Newest format version to which PyIceberg can commit snapshots."""

FIRST_WITH_REFS = 2
"""First format version whose metadata has branches and tags. Java's code and PyIceberg keep them in
version 1, too; others write what the specification has there, and lose the tag with its file."""

NOT_KEPT = "puffin-ann.tag-not-kept-at-ms"
"""Property of a table: when its catalog did not keep a tag, milliseconds since 1970."""

ASK_AGAIN_MS = 7 * 24 * 3_600_000
"""How long after that a refresh asks the catalog for a tag again; a build does at once."""


def publish_mode(
    table: Table, declared: DeclaredMode, *, ask_again_ms: int = ASK_AGAIN_MS
) -> tuple[PublishMode, str]:
    """Return how to publish into a table as it is now, and why.

    `auto` takes a tag wherever one is kept, as far as that can be known before. Else it takes the
    statistics of the snapshot that was indexed, which leaves branches as they are, too.

    Args:
        table: as it was loaded.
        declared: how to publish.
        ask_again_ms: how long it counts that the catalog did not keep a tag.

    Raises:
        UnsupportedTableError: its catalog cannot change tables of this format version at all.
    """
    _require_writable(table)
    if declared != "auto":
        return declared, "declared"
    forgets = _forgets_tags(table) or _forgot_one(table, ask_again_ms)
    if forgets:
        return "statistics", forgets
    return "tag", "a tag keeps the file and no branch changes"


def _require_writable(table: Table) -> None:
    version = table.metadata.format_version
    if version > WRITABLE_VERSION and isinstance(table.catalog, MetastoreCatalog):
        raise UnsupportedTableError(
            f"{name_of(table)} is of format version {version}, and catalog "
            f"{table.catalog.name!r} leaves it to PyIceberg to write the table's metadata, "
            f"which it can up to version {WRITABLE_VERSION}: use a REST catalog"
        )


@dataclass(frozen=True)
class ModeChoice:
    """How a run publishes, until its catalog says that it keeps no tags.

    Attributes:
        declared: how to publish.
        ask_again_ms: how long it counts that the catalog did not keep a tag.
        properties: of the table, to be set in the commit.
    """

    declared: DeclaredMode
    ask_again_ms: int = ASK_AGAIN_MS
    properties: Mapping[str, str] = field(default_factory=dict)

    def of(self, table: Table) -> tuple[PublishMode, str]:
        """Return how to publish into a table as it is now, and why; raises as `publish_mode`."""
        return publish_mode(table, self.declared, ask_again_ms=self.ask_again_ms)

    def after(self, error: Exception) -> "ModeChoice | None":
        """Return how to publish after a refusal; None if not at all."""
        if isinstance(error, TagNotKeptError) and self.declared == "auto":
            return ModeChoice("statistics", properties=not_kept_now())
        return self if isinstance(error, ConflictError) else None


def not_kept_now() -> dict[str, str]:
    """Return the property by which a table's catalog counts as one that keeps no tags."""
    return {NOT_KEPT: str(now_ms())}


def _forgot_one(table: Table, ask_again_ms: int) -> str:
    """Return when the catalog did not keep a tag, if that counts still and it has none by now."""
    try:
        at_ms = int(table.properties.get(NOT_KEPT, ""))
    except ValueError:
        return ""
    if not 0 <= now_ms() - at_ms < ask_again_ms or own_tags(table):
        return ""
    return f"its catalog did not keep a tag on {as_utc(at_ms)}"


def _forgets_tags(table: Table) -> str:
    """Return why a tag would not be kept; empty if nothing speaks for that."""
    version = table.metadata.format_version
    if version < FIRST_WITH_REFS:
        return f"metadata of format version {version} has no tags"
    if is_s3_table(table):
        return "the table is in an S3 table bucket, which keeps no tags"
    return ""


def is_s3_table(table: Table) -> bool:
    """Tell whether a table is in an S3 table bucket, reached by its own endpoint or by Glue's."""
    properties = table.catalog.properties
    host = urlsplit(properties.get("uri", "")).hostname or ""
    warehouse = properties.get("warehouse", "")
    bucket = urlsplit(table.location()).netloc
    return (
        "s3tables" in host.split(".")
        or properties.get("rest.signing-name") == "s3tables"
        or (warehouse.startswith("arn:aws") and ":s3tables:" in warehouse)
        or "s3tablescatalog" in warehouse.split(":")[-1].split("/")
        or bucket.endswith("--table-s3")
    )
