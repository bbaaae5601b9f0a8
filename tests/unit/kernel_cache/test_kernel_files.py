"""A kept kernel is loaded for its key alone, whole, and from those who may have written it."""

import os
from pathlib import Path

import pytest

from puffin_ann import private_folders
from puffin_ann.kernel_cache.kernel_files import load, save


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "kernel"
    save(path, "key", {"machine": "code"})
    return path


def test_what_was_kept_is_loaded_for_its_key_alone_and_by_this_user_alone(file):
    assert load(file, "key", "this user") == {"machine": "code"}
    assert load(file, "other", "this user") is None
    assert load(file.with_name("other"), "key", "this user") is None
    assert [path.stat().st_mode & 0o777 for path in file.parent.iterdir()] == [0o600]


@pytest.mark.parametrize(
    "corrupt", ["loose", "link", "foreign", "cut short", "flipped", "folder", "pipe"]
)
def test_a_file_that_cannot_be_trusted_or_read_is_as_if_it_were_not_there(
    file, monkeypatch, caplog, corrupt
):
    corrupted(file, corrupt, monkeypatch)
    assert load(file, "key", "this user") is None
    assert str(file) in caplog.text


def corrupted(path: Path, how: str, monkeypatch) -> None:
    if how == "loose":
        path.chmod(0o666)
    elif how == "link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to("elsewhere")
    elif how == "foreign":
        monkeypatch.setattr(private_folders, "_is_trusted", lambda uid: False)
    elif how == "cut short":
        path.write_bytes(path.read_bytes()[:-3])
    elif how == "flipped":
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
    else:
        path.unlink()
        path.mkdir() if how == "folder" else os.mkfifo(path)


def test_a_file_that_all_may_write_to_is_loaded_where_all_are_trusted(file):
    file.chmod(0o666)
    assert load(file, "key", "anyone") == {"machine": "code"}
    assert load(file, "key", "of the code") is None
