import object_store
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory):
    """A running S3 server with one bucket."""
    with object_store.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as started:
        yield started


@pytest.fixture(scope="session")
def s3(endpoint):
    """A client that bypasses the proxy, for preparing and judging."""
    return object_store.client(endpoint)


@pytest.fixture
def proxy(endpoint):
    started = object_store.Proxy(endpoint)
    yield started
    started.close()


@pytest.fixture
def io(proxy):
    """The FileIO of a table whose store is behind the proxy."""
    return PyArrowFileIO(object_store.properties(proxy.endpoint))
