"""A lake: a catalog that PyIceberg, Spark and the library share, and the store under it."""

import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from tests.support.servers import object_store

_numbers = itertools.count(1)


@dataclass
class Lake:
    """A catalog of both engines' configuration, with a namespace of its own for each test.

    Attributes:
        name: the catalog's name, for the library, PyIceberg and Spark alike.
        spark: the one Spark session of the test run.
        on_s3: whether tables are on S3, or on the local disk.
    """

    name: str
    spark: Any
    on_s3: bool
    s3: Any = None
    namespace: str = field(default_factory=lambda: f"n{next(_numbers)}")

    def __post_init__(self) -> None:
        self.catalog.create_namespace_if_not_exists(self.namespace)

    @property
    def catalog(self) -> Catalog:
        """PyIceberg's side; a handle of its own at each call, as another process would have."""
        return load_catalog(self.name)

    def named(self, table: str = "words") -> str:
        """The table's name in SQL and for the library."""
        return f"{self.name}.{self.namespace}.{table}"

    def create(self, rows: pa.Table, table: str = "words", **properties: str) -> Table:
        """A table with these rows, in format version 2 unless said otherwise."""
        created = self.catalog.create_table(
            (self.namespace, table),
            schema=rows.schema,
            properties={"format-version": "2", **properties},
        )
        if rows.num_rows:
            created.append(rows)
        return created

    def create_by_spark(self, rows: pa.Table, table: str = "words", **properties: str) -> Table:
        """A table that Spark writes, in format version 3 unless said otherwise."""
        self.create(rows, f"{table}_source")
        settings = {
            "format-version": "3",
            "write.delete.mode": "merge-on-read",
            "write.update.mode": "merge-on-read",
            "write.merge.mode": "merge-on-read",
            **properties,
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in settings.items())
        source = self.named(f"{table}_source")
        self.sql(
            f"CREATE TABLE {{t}} USING iceberg TBLPROPERTIES ({listed}) "
            f"AS SELECT * FROM {source} ORDER BY id",
            table,
        )
        return self.load(table)

    def rows(self, at: str = "", table: str = "words") -> tuple[np.ndarray, np.ndarray]:
        """What Spark reads: ids and vectors; `at` is a clause such as `VERSION AS OF 3`."""
        found = self.sql(f"SELECT id, embedding FROM {{t}} {at} WHERE embedding IS NOT NULL", table)
        ids = np.array([row.id for row in found], dtype=np.int64)
        vectors = np.array([row.embedding for row in found], dtype=np.float32)
        return ids, vectors.reshape(len(ids), -1)

    def load(self, table: str = "words") -> Table:
        """The table as the catalog has it now."""
        return self.catalog.load_table((self.namespace, table))

    def sql(self, statement: str, table: str = "words") -> list[Any]:
        """Run SQL; `{t}` stands for the table, `{c}` for the catalog, `{n}` for namespace.table."""
        text = statement.format(t=self.named(table), c=self.name, n=f"{self.namespace}.{table}")
        return self.spark.sql(text).collect()

    def distinct_counts(self, table: str = "words") -> dict[str, int]:
        """What Spark's optimizer believes of a table's columns."""
        self.spark.conf.set("spark.sql.cbo.enabled", "true")
        try:
            plan = self.spark.table(self.named(table))._jdf.queryExecution().optimizedPlan()
            statistics = plan.collectLeaves().head().stats().attributeStats().toSeq()
            found = {}
            for number in range(statistics.size()):
                pair = statistics.apply(number)
                count = pair._2().distinctCount()
                if count.isDefined():
                    found[pair._1().name()] = int(str(count.get()))
            return found
        finally:
            self.spark.conf.unset("spark.sql.cbo.enabled")

    def leaked(self, table: Table) -> set[str]:
        """Puffin files, manifests and manifest lists that the table's metadata does not name."""
        table.refresh()
        named = {entry.statistics_path for entry in table.metadata.statistics}
        for snapshot in table.snapshots():
            named.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                named.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                named |= {entry.data_file.file_path for entry in entries}
        written = {
            file for file in self.files(table) if file.endswith((".puffin", ".avro", ".stats"))
        }
        return written - {plain(location) for location in named}

    def files(self, table: Table) -> set[str]:
        """Locations of all objects under the table's location, whoever wrote them."""
        location = table.location().rstrip("/") + "/"
        if not self.on_s3:
            root = Path(plain(location))
            return {str(path) for path in root.rglob("*") if path.is_file()}
        prefix = location.removeprefix(f"s3://{object_store.BUCKET}/")
        pages = self.s3.get_paginator("list_objects_v2").paginate(
            Bucket=object_store.BUCKET, Prefix=prefix
        )
        keys = (
            stored_object["Key"] for page in pages for stored_object in page.get("Contents", ())
        )
        return {f"s3://{object_store.BUCKET}/{key}" for key in keys}


def plain(location: str) -> str:
    """A location as `files` gives it; writers spell the scheme of a path on disk differently."""
    return (
        location
        if location.startswith("s3:")
        else re.sub("^/+", "/", location.removeprefix("file:"))
    )


def spark_settings(name: str, uri: str, endpoint: str) -> dict[str, str]:
    """Spark's settings for the REST catalog `name`, with tables on S3."""
    catalog = f"spark.sql.catalog.{name}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "rest",
        f"{catalog}.uri": uri,
        f"{catalog}.cache-enabled": "false",
        f"{catalog}.client.region": "us-east-1",
        **{f"{catalog}.{key}": value for key, value in java_store(endpoint).items()},
    }


def java_store(endpoint: str) -> dict[str, str]:
    """What Iceberg's Java FileIO needs to know of the store."""
    return {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": "us-east-1",
        "s3.endpoint": endpoint,
        "s3.access-key-id": object_store.ACCESS_KEY,
        "s3.secret-access-key": object_store.SECRET_KEY,
        "s3.path-style-access": "true",
    }


def embedded_settings(name: str, folder: Path) -> dict[str, str]:
    """Spark's settings for the embedded SQLite catalog `name`, with tables on the local disk."""
    catalog = f"spark.sql.catalog.{name}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{folder}/catalog.db",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"file://{folder}/warehouse",
        f"{catalog}.cache-enabled": "false",
    }


def environment(name: str, settings: dict[str, str]) -> dict[str, str]:
    """The variables by which PyIceberg, and with it the library, knows a catalog."""
    return {
        f"PYICEBERG_CATALOG__{name.upper()}__"
        + key.upper().replace(".", "__").replace("-", "_"): value
        for key, value in settings.items()
    }
