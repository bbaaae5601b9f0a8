"""A folder of the cache that was cut short, altered or lost bits is noticed and filled anew."""

import json
import os
import shutil
import threading

import pytest

from puffin_ann.search.cache import integrity
from puffin_ann.search.cache.integrity import MARK, Seal
from puffin_ann.search.cache.local_cache import LocalCache

CONTENT = b"0123456789" * 100


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(integrity, "SMALL_BYTES", 100)
    return LocalCache(tmp_path / "cache")


@pytest.fixture
def calls():
    return []


@pytest.fixture
def filled(cache, calls):
    """Ask for the one folder; counts how often it was filled."""

    def ask(key: str = "key"):
        def fill(folder):
            calls.append(key)
            (folder / "data").write_bytes(CONTENT)
            (folder / "inner").mkdir()
            (folder / "inner" / "more").write_bytes(CONTENT[:50])

        with cache.held(key, fill) as folder:
            return folder

    return ask


def alter(path, at: int = 7) -> None:
    """Change one byte."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"X")


def keep_times(path, change) -> None:
    """Change a file as a failing disk does: without a trace in its times."""
    before = path.stat()
    change(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def truncate(path) -> None:
    os.truncate(path, 500)


@pytest.mark.parametrize("name", ["data", "inner/more"])
@pytest.mark.parametrize("corrupt", [os.remove, alter, lambda path: os.truncate(path, 20)])
def test_what_was_corrupted_is_filled_anew(filled, calls, name, corrupt):
    corrupt(filled() / name)
    folder = filled()
    assert (folder / "data").read_bytes() == CONTENT
    assert (folder / "inner" / "more").read_bytes() == CONTENT[:50]
    assert calls == ["key", "key"]
    filled()
    assert calls == ["key", "key"]


def test_a_file_cut_short_without_a_trace_in_its_times_is_noticed(filled, calls):
    keep_times(filled() / "data", truncate)
    assert (filled() / "data").read_bytes() == CONTENT
    assert len(calls) == 2


@pytest.mark.parametrize("text", ["", "1024", "{}", '{"files": {"data": [1]}, "proved_at": 0}'])
def test_a_folder_whose_seal_cannot_be_read_is_filled_anew(filled, calls, text):
    (filled() / MARK).write_text(text)
    assert (filled() / "data").read_bytes() == CONTENT
    assert len(calls) == 2


def test_a_copied_cache_is_as_good(filled, calls, cache):
    folder = filled()
    copied = folder.with_name("copied")
    shutil.copytree(folder, copied)
    os.utime(copied / "data", ns=(0, 0))
    shutil.rmtree(folder)
    copied.rename(folder)
    assert filled() == folder
    assert len(calls) == 1
    assert Seal.of(folder).files["data"].written_ns == 0, "the content is not read a second time"


def age(folder) -> None:
    told = json.loads((folder / MARK).read_text())
    (folder / MARK).write_text(json.dumps({**told, "proved_at": told["proved_at"] - 90_000}))


def wait() -> None:
    """Wait for checks in the background."""
    for thread in threading.enumerate():
        if thread.name.startswith("check "):
            thread.join(10)


def test_bits_that_a_disk_lost_are_found_a_day_later_and_told(filled, calls, cache):
    keep_times(filled() / "data", alter)
    filled()
    wait()
    assert len(calls) == 1, "lengths and times are right"
    age(filled())
    filled()
    wait()
    assert cache.take_corrupted()
    assert not cache.take_corrupted()
    assert (filled() / "data").read_bytes() == CONTENT


def test_bits_that_a_disk_lost_of_a_small_file_are_found_at_once(filled, calls):
    keep_times(filled() / "inner" / "more", alter)
    assert (filled() / "inner" / "more").read_bytes() == CONTENT[:50]
    assert len(calls) == 2


def test_what_is_right_is_not_read_again_for_a_day(filled, calls, cache):
    age(filled())
    folder = filled()
    wait()
    assert not Seal.of(folder).is_due()
    assert not cache.take_corrupted()
    assert len(calls) == 1


def test_a_key_is_looked_up_once_and_forgotten_with_its_folder(tmp_path, filled):
    cache = LocalCache(tmp_path / "cache", max_bytes=1500)
    looked = []

    def look():
        looked.append(True)
        return "key"

    assert cache.key("here", look) == cache.key("here", look) == "key"
    assert len(looked) == 1
    cache.forget(filled())
    with cache.held("other", lambda folder: (folder / "data").write_bytes(b"x")):
        pass
    cache.key("here", look)
    assert len(looked) == 2
