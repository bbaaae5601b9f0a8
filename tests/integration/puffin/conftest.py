import iceberg_java
import pytest


@pytest.fixture(scope="session")
def stage(tmp_path_factory):
    """The folder of a catalog that Spark and PyIceberg share."""
    return tmp_path_factory.mktemp("judged")


@pytest.fixture(scope="session")
def spark(stage):
    """Spark with Iceberg's own implementation; its catalog `test` is in `stage`."""
    from pyspark.sql import SparkSession

    catalog = "spark.sql.catalog.test"
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.jars": ",".join(map(str, iceberg_java.jars())),
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.warehouse.dir": str(stage / "spark-warehouse"),
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{stage}/catalog.db",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"file://{stage}/warehouse",
        f"{catalog}.cache-enabled": "false",
    }
    builder = SparkSession.builder.appName("puffin-ann tests")
    session = builder.config(map=settings).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def jvm(spark):
    return spark.sparkContext._jvm


@pytest.fixture
def read_by_java(jvm):
    """What Java's reader says of a file: its properties, and of each blob metadata and content."""

    def read(path):
        reader = jvm.org.apache.iceberg.puffin.Puffin.read(
            jvm.org.apache.iceberg.Files.localInput(str(path).removeprefix("file:"))
        ).build()
        metadata = reader.fileMetadata()
        blobs = []
        pairs = reader.readAll(metadata.blobs()).iterator()
        while pairs.hasNext():
            pair = pairs.next()
            content = jvm.org.apache.iceberg.util.ByteBuffers.toByteArray(pair.second())
            blobs.append((pair.first(), bytes(content)))
        return dict(metadata.properties()), blobs

    return read
