"""The services of the integration tests: each is started once a run, by the test that needs it."""

import pytest
from pyiceberg.utils.config import Config

from puffin_ann.settings import settings
from tests.support.indexes import former_modes
from tests.support.lifecycle import builds
from tests.support.servers import iceberg_java, lakes, object_store
from tests.support.servers.catalog_proxy import CatalogProxy
from tests.support.servers.rest_catalog import rest_catalog


@pytest.fixture
def published_on_main(monkeypatch):
    """Versions are published by index snapshots, as they were once, in files of all indexes."""
    former_modes.published_on_main(monkeypatch)


@pytest.fixture
def published_by_statistics(monkeypatch):
    """Versions are published under the snapshots that they cover, whose one slot others fill."""
    monkeypatch.setitem(builds.DEFAULTS, "publish", "statistics")


@pytest.fixture
def layered(monkeypatch):
    """However small, an index is published in layers."""
    monkeypatch.setenv("PUFFIN_ANN_WHOLE_FILE_BYTES", "0")
    settings.cache_clear()
    yield
    monkeypatch.undo()
    settings.cache_clear()


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory):
    """A running S3 server with one bucket."""
    with object_store.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as started:
        yield started


@pytest.fixture(scope="session")
def s3(endpoint):
    """A client that bypasses the proxy, for preparing and judging."""
    return object_store.client(endpoint)


@pytest.fixture(scope="session")
def rest_uri(tmp_path_factory, endpoint):
    """A running REST catalog whose warehouse is on S3."""
    properties = {
        "warehouse": f"s3://{object_store.BUCKET}/rest",
        **lakes.java_store(endpoint),
    }
    with rest_catalog(tmp_path_factory.mktemp("rest"), properties) as uri:
        yield uri


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The one Spark session of the run, with Iceberg's own implementation.

    A catalog is known as soon as its settings are set: Spark loads it when it is first named.
    """
    from pyspark.sql import SparkSession

    configuration = iceberg_java.session_settings(tmp_path_factory.mktemp("spark-warehouse"), 2)
    builder = SparkSession.builder.appName("puffin-ann tests")
    session = builder.config(map=configuration).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def jvm(spark):
    """Java's classes, in Spark's JVM."""
    return spark.sparkContext._jvm


@pytest.fixture(scope="session")
def _embedded_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("embedded")


@pytest.fixture
def known_catalogs(monkeypatch, tmp_path):
    """A function that makes catalogs known to PyIceberg and the library for one test."""

    def know(name, **properties):
        for key, value in lakes.environment(name, properties).items():
            monkeypatch.setenv(key, value)
        # PyIceberg and the library read the environment once.
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())

    monkeypatch.setenv("PUFFIN_ANN_CACHE_DIR", str(tmp_path / "cache"))
    settings.cache_clear()
    yield know
    settings.cache_clear()


@pytest.fixture
def rest_lake(spark, rest_uri, endpoint, s3, known_catalogs):
    """REST catalog, S3, Spark."""
    known_catalogs("rest", type="rest", uri=rest_uri, **object_store.properties(endpoint))
    for key, value in lakes.spark_settings("rest", rest_uri, endpoint).items():
        spark.conf.set(key, value)
    return lakes.Lake("rest", spark, on_s3=True, s3=s3)


@pytest.fixture
def embedded_lake(spark, _embedded_folder, known_catalogs):
    """Embedded SQLite catalog, local disk, Spark."""
    known_catalogs(
        "embedded",
        type="sql",
        uri=f"sqlite:///{_embedded_folder}/catalog.db",
        warehouse=f"file://{_embedded_folder}/warehouse",
    )
    for key, value in lakes.embedded_settings("embedded", _embedded_folder).items():
        spark.conf.set(key, value)
    return lakes.Lake("embedded", spark, on_s3=False)


@pytest.fixture(params=["rest", "embedded"])
def lake(request):
    """Each of the two, in turn."""
    return request.getfixturevalue(f"{request.param}_lake")


@pytest.fixture
def catalog_proxy(rest_uri):
    """A proxy before the REST catalog."""
    proxy = CatalogProxy(rest_uri)
    yield proxy
    proxy.close()


@pytest.fixture
def proxied_lake(rest_lake, catalog_proxy, endpoint, known_catalogs):
    """The REST lake as one sees it through `catalog_proxy`; its catalog is called `proxied`."""
    known_catalogs(
        "proxied", type="rest", uri=catalog_proxy.uri, **object_store.properties(endpoint)
    )
    return lakes.Lake("proxied", None, on_s3=True, s3=rest_lake.s3, namespace=rest_lake.namespace)
