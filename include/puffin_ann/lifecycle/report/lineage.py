"""What a published version was made of, by the names that OpenLineage gives to such things.

An Iceberg table is called by its location, as OpenLineage's own integration for Spark calls it, so
that what Spark writes and what we read is one dataset. Where its catalog has an address, it has a
second name there. An index has no location that lasts: it is called by that of its table, and by
its own name as the fragment.
"""

from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table

from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lake.store.listing import canonical
from puffin_ann.lifecycle.report.figures import Figures, figures_of
from puffin_ann.redaction import redact

CATALOGS = {"http": "", "https": "", "thrift": "hive"}
"""Schemes of catalogs that tables have names in, and how OpenLineage has them, if not as such."""


class DatasetName(BaseModel):
    """What OpenLineage calls a dataset."""

    model_config = ConfigDict(frozen=True)

    namespace: str
    name: str


class Lineage(BaseModel):
    """What a run read, and what it published.

    Attributes:
        table: that was read.
        alias: its name in its catalog, None where that has no address.
        table_version: the snapshot whose rows are indexed.
        index: that was published.
        index_version: the snapshot that the version is registered under; None if there is none.
        rows: of the index.
        bytes: of the index.
    """

    model_config = ConfigDict(frozen=True)

    table: DatasetName
    alias: DatasetName | None
    table_version: int
    index: DatasetName
    index_version: int | None
    rows: int
    bytes: int


def told_of(table: str | Table, index: str) -> tuple[Figures, Lineage]:
    """Return what there is to tell of the newest version of an index; raises as `figures_of`."""
    loaded = load_table(table)
    figures = figures_of(loaded, index)
    return figures, lineage_of(loaded, figures)


def lineage_of(table: Table, figures: Figures) -> Lineage:
    """Return the lineage of the newest version of an index.

    Args:
        table: as it was loaded.
        figures: of the version.
    """
    name = name_of_location(table.location())
    return Lineage(
        table=name,
        alias=_alias(table),
        table_version=figures.base_snapshot_id,
        index=DatasetName(namespace=name.namespace, name=f"{name.name}#{figures.index}"),
        index_version=figures.snapshot_id,
        rows=figures.rows,
        bytes=figures.bytes,
    )


def name_of_location(location: str) -> DatasetName:
    """Return what OpenLineage calls what lies at a location of a store."""
    scheme, _, rest = canonical(location.rstrip("/")).partition("://")
    if scheme == "file":
        return DatasetName(namespace="file", name=rest)
    authority, _, path = rest.partition("/")
    name = f"/{path}" if scheme == "hdfs" else path or "/"
    return DatasetName(namespace=f"{scheme}://{authority}", name=name)


def _alias(table: Table) -> DatasetName | None:
    address = urlsplit(str(table.catalog.properties.get("uri", "")))
    if address.scheme not in CATALOGS:
        return None
    shown = address._replace(scheme=CATALOGS[address.scheme] or address.scheme, query="")
    return DatasetName(namespace=redact(shown.geturl()), name=".".join(table.name()))
