"""What stands in a file's place and is none: a pipe that nobody writes to is not waited for."""

import os

import pytest
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.lake.metadata.files import MetadataReader
from puffin_ann.lake.store.listing import is_folder, list_objects
from puffin_ann.lake.store.objects import FOLDER, object_length, open_object


@pytest.fixture(params=[PyArrowFileIO, FsspecFileIO])
def io(request):
    return request.param({})


@pytest.fixture
def pipe(tmp_path) -> str:
    os.mkfifo(tmp_path / "p?.metadata.json")
    os.mkfifo(tmp_path / "p")
    return f"file://{tmp_path}/p?.metadata.json"


@pytest.fixture(autouse=True)
def no_opening(monkeypatch):
    """Let a pipe that would be opened fail the test, which would wait for ever else."""
    for kind in (PyArrowFileIO, FsspecFileIO):
        monkeypatch.setattr(kind, "new_input", lambda *_: pytest.fail("it was opened"))


def test_a_pipe_is_no_file(io, pipe):
    with pytest.raises(IsADirectoryError):
        open_object(io, pipe)
    assert object_length(io, pipe) == FOLDER
    assert is_folder(io, pipe)


def test_a_device_is_no_file(io):
    with pytest.raises(IsADirectoryError):
        open_object(io, "file:///dev/zero")


def test_metadata_that_is_a_pipe_is_damaged_and_is_not_listed(io, pipe, tmp_path):
    assert MetadataReader().whole(io, [pipe])[pipe].is_damaged
    assert MetadataReader().heads(io, [pipe])[pipe].is_damaged
    assert list_objects(io, f"file://{tmp_path}") == []
