import errno
import os
import time

import pytest

from puffin_ann.errors import EnvironmentProblemError
from puffin_ann.search.cache.local_cache import LocalCache
from puffin_ann.settings import settings


def _ask(cache, key, fill):
    with cache.held(key, fill) as folder:
        return folder


def _fill(text, calls):
    def fill(folder):
        calls.append(text)
        (folder / "data").write_text(text)

    return fill


def test_a_full_disk_is_named_with_what_to_do(tmp_path):
    def fail(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(EnvironmentProblemError, match="PUFFIN_ANN_CACHE_DIR"):
        _ask(LocalCache(tmp_path), "key", fail)


def test_what_was_forgotten_is_filled_again(tmp_path):
    cache, calls = LocalCache(tmp_path), []
    cache.forget(_ask(cache, "key", _fill("a", calls)))
    assert (_ask(cache, "key", _fill("b", calls)) / "data").read_text() == "b"


def test_what_is_no_file_any_more_is_filled_again(tmp_path):
    cache, calls = LocalCache(tmp_path), []
    folder = _ask(cache, "key", _fill("a", calls))
    for path in list(folder.iterdir()):
        path.unlink()
        path.mkdir()
    assert (_ask(cache, "key", _fill("b", calls)) / "data").read_text() == "b"


def test_a_key_is_filled_once(tmp_path):
    cache, calls = LocalCache(tmp_path), []
    first = _ask(cache, "key", _fill("a", calls))
    assert _ask(cache, "key", _fill("b", calls)) == first
    assert (first / "data").read_text() == "a"
    assert calls == ["a"]


def test_a_failed_fill_leaves_nothing_behind(tmp_path):
    cache = LocalCache(tmp_path)

    def fail(folder):
        (folder / "data").write_text("half")
        raise OSError("disk")

    with pytest.raises(EnvironmentProblemError, match="disk"):
        _ask(cache, "key", fail)
    assert list(tmp_path.iterdir()) == []


def test_what_was_used_longest_ago_makes_room(tmp_path):
    cache, calls = LocalCache(tmp_path, max_bytes=250), []
    old = _ask(cache, "old", _fill("x" * 100, calls))
    used = _ask(cache, "used", _fill("y" * 100, calls))
    os.utime(used / ".complete", (1, 1))
    os.utime(old / ".complete", (2, 2))
    _ask(cache, "used", _fill("never", calls))  # a hit makes it the newest
    new = _ask(cache, "new", _fill("z" * 100, calls))
    assert not old.exists()
    assert used.exists()
    assert new.exists()


def test_others_are_not_all_looked_at_for_each_that_comes_while_there_is_room(
    tmp_path, monkeypatch
):
    looks, entries = [], LocalCache._entries

    def look(cache):
        looks.append(len(looks))
        time.sleep(0.02)
        return entries(cache)

    monkeypatch.setattr(LocalCache, "_entries", look)
    large, small = LocalCache(tmp_path / "large", 10**9), LocalCache(tmp_path / "small", 1200)
    for cache in (large, small):
        cache.root.mkdir()
    for number in range(20):
        _ask(large, f"key {number}", _fill("a" * 100, []))
    assert len(looks) < 10
    for number in range(20):
        _ask(small, f"key {number}", _fill("a" * 100, []))
    assert len(looks) > 20
    kept = [folder for folder in small.root.iterdir() if (folder / "data").exists()]
    assert sum(len((folder / "data").read_text()) for folder in kept) <= 1200


def test_where_the_cache_cannot_be_written_a_temporary_folder_serves(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("PUFFIN_ANN_CACHE_DIR", str(tmp_path / "file"))
    settings.cache_clear()
    try:
        cache = LocalCache()
    finally:
        settings.cache_clear()
    assert os.access(cache.root, os.W_OK)
