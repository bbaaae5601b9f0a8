"""What a folder holds, as it is listed: whatever else lies in it."""

import errno
import os
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import StoreDeniedError
from puffin_ann.lake.store.listing import list_objects

IO = PyArrowFileIO()


def names(folder: Path) -> list[str]:
    return [
        list_stored_object.uri.rpartition("/")[2]
        for list_stored_object in list_objects(IO, f"file://{folder}")
    ]


def test_links_that_lead_nowhere_are_nothing_and_those_to_themselves_something(tmp_path):
    (tmp_path / "sound").write_bytes(b"abc")
    (tmp_path / "link").symlink_to(tmp_path / "sound")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    assert names(tmp_path) == ["link", "loop", "sound"]


def test_names_that_are_no_text_are_nobodys(tmp_path):
    (tmp_path / "sound").write_bytes(b"abc")
    (tmp_path / os.fsdecode(b"ann-\xff.puffin")).write_bytes(b"abc")
    assert names(tmp_path) == ["sound"]


def test_a_folder_that_is_not_there_holds_nothing(tmp_path):
    assert names(tmp_path / "gone") == []


def test_a_folder_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StoreDeniedError, match=f"access to .*{tmp_path}: Permission denied"):
        names(tmp_path)
