"""Locations that no store has, as a corrupted file may name them: told as what they are."""

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import FormatError
from puffin_ann.lake.read.errors import open_parquet
from puffin_ann.lake.store.objects import object_length, open_object
from puffin_ann.search.version.index_files import open_puffin


def open_version(io, uri):
    with open_puffin(io, uri):
        pass


@pytest.mark.parametrize("uri", ["gopher://x/y", "hf://a/b", "http://a/x", "/tmp/a\0b", "s3:///"])
@pytest.mark.parametrize("read", [open_object, object_length, open_parquet, open_version])
def test_a_location_that_no_store_has_is_refused_by_name(uri, read):
    with pytest.raises(FormatError, match="can be opened") as caught:
        read(PyArrowFileIO(), uri)
    assert uri in str(caught.value)


def test_a_name_too_long_for_a_file_is_one_that_nothing_has(tmp_path):
    assert object_length(PyArrowFileIO(), str(tmp_path / ("x" * 300))) is None
