"""How a version is made known to a table: by a tag of ours where tags are kept."""

from typing import Literal
from urllib.parse import urlsplit

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import ancestors_of

from puffin_ann.errors import UnsupportedTableError
from puffin_ann.lake.catalog.tables import name_of

PublishMode = Literal["snapshot", "statistics", "tag"]
DeclaredMode = Literal["snapshot", "statistics", "tag", "auto"]

WRITABLE_VERSION = 2
"""Newest format version to which PyIceberg can commit snapshots."""

FIRST_WITH_REFS = 2
"""First format version whose metadata has branches and tags. Java's code and PyIceberg keep them in
version 1, too; others write what the specification has there, and lose the tag with its file."""


def publish_mode(table: Table, declared: DeclaredMode) -> tuple[PublishMode, str]:
    """Return how to publish into a table as it is now, and why.

    `auto` takes a tag wherever one is kept, as far as that can be known before. Else it takes the
    statistics of the snapshot that was indexed, which leaves branches as they are, too.

    Raises:
        UnsupportedTableError: an index snapshot is declared and the table can have none, or its
            catalog cannot change tables of this format version at all.
    """
    _require_writable(table, declared)
    if declared != "auto":
        return declared, "declared"
    forgets = _forgets_tags(table)
    if forgets:
        return "statistics", forgets
    return "tag", "a tag keeps the file and no branch changes"


def mode_on_main(table: Table, branch: str = MAIN_BRANCH) -> PublishMode:
    """Return how to publish again what is held by no tag: where the head keeps it.

    That is an index snapshot unless the table's format version forbids one, or it would keep
    another branch from being fast-forwarded to: the branch continues from this one's head, which
    one more snapshot here would no longer be.

    Raises:
        UnsupportedTableError: the catalog cannot change tables of this format version at all.
    """
    _require_writable(table, "auto")
    is_too_new = table.metadata.format_version > WRITABLE_VERSION
    return "statistics" if is_too_new or branches_ahead(table, branch) else "snapshot"


def branches_ahead(table: Table, branch: str = MAIN_BRANCH) -> list[str]:
    """Return the other branches that `branch` can be fast-forwarded to, or will be able to."""
    head = table.metadata.snapshot_by_name(branch)
    if head is None:
        return []
    return sorted(
        name
        for name, ref in table.metadata.refs.items()
        if name != branch
        and ref.snapshot_ref_type == SnapshotRefType.BRANCH
        and any(
            snapshot.snapshot_id == head.snapshot_id
            for snapshot in ancestors_of(table.snapshot_by_id(ref.snapshot_id), table.metadata)
        )
    )


def _require_writable(table: Table, declared: DeclaredMode) -> None:
    version = table.metadata.format_version
    if version <= WRITABLE_VERSION:
        return
    if declared == "snapshot":
        raise UnsupportedTableError(
            f"{name_of(table)} is of format version {version}; PyIceberg cannot commit "
            f"snapshots to tables above version {WRITABLE_VERSION}: declare 'publish: auto' "
            "or 'publish: statistics'"
        )
    if isinstance(table.catalog, MetastoreCatalog):
        raise UnsupportedTableError(
            f"{name_of(table)} is of format version {version}, and catalog "
            f"{table.catalog.name!r} leaves it to PyIceberg to write the table's metadata, "
            f"which it can up to version {WRITABLE_VERSION}: use a REST catalog"
        )


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
