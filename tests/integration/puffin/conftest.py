import pytest

from tests.support.servers import lakes


@pytest.fixture(scope="session")
def stage(tmp_path_factory):
    """The folder of a catalog that Spark and PyIceberg share."""
    return tmp_path_factory.mktemp("judged")


@pytest.fixture(scope="session")
def spark(spark, stage):
    """The run's Spark session; its catalog `test` is in `stage`."""
    for key, value in lakes.embedded_settings("test", stage).items():
        spark.conf.set(key, value)
    return spark


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
