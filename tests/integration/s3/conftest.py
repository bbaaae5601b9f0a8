import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.support.servers import object_store


@pytest.fixture
def proxy(endpoint):
    started = object_store.Proxy(endpoint)
    yield started
    started.close()


@pytest.fixture
def io(proxy):
    """The FileIO of a table whose store is behind the proxy."""
    return PyArrowFileIO(object_store.properties(proxy.endpoint))
