"""What is wrong with the local disk is told as such, and searches go on wherever they can."""

import errno
import gc
import os
import resource
import shutil
import stat
import tempfile
import time
from pathlib import Path

import pytest

from puffin_ann import private_folders
from puffin_ann.errors import EnvironmentProblemError, LocalCopyError, PuffinFormatError
from puffin_ann.search.cache import local_cache as module
from puffin_ann.search.cache.integrity import MARK, Seal
from puffin_ann.search.cache.local_cache import LocalCache

FAULTS = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENOENT, errno.ESTALE)
CALLS = {
    "open a folder": (os, "open"),
    "rename": (Path, "rename"),
    "make a folder": (os, "mkdir"),
    "find room": (shutil, "disk_usage"),
    "seal": (Seal, "put"),
    "touch": (os, "utime"),
    "look": (os, "lstat"),
    "list": (Path, "glob"),
    "walk": (os, "walk"),
}


def fill(folder):
    (folder / "data").write_text("content")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Another folder for temporary files, that works whatever becomes of the cache."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def root(tmp_path):
    return tmp_path / "cache"


@pytest.mark.parametrize("number", FAULTS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_call_that_fails_in_the_cache_keeps_nobody_from_searching(
    root, elsewhere, monkeypatch, call, number, is_there
):
    cache = LocalCache(root)
    if is_there:
        with cache.held("key", fill):
            pass
    owner, name = CALLS[call]
    real = getattr(owner, name)

    def failing(*arguments, **others):
        if any(str(argument).startswith(str(root)) for argument in arguments):
            raise OSError(number, os.strerror(number), str(root))
        return real(*arguments, **others)

    monkeypatch.setattr(owner, name, failing)
    monkeypatch.setattr(module, "_is_hopeless", lambda error, root: False)
    with cache.held("key", fill) as folder:
        content = (folder / "data").read_text()
    monkeypatch.undo()
    assert content == "content"
    assert list(elsewhere.iterdir()) == []
    with LocalCache(root).held("key", fill) as folder:
        assert (folder / "data").read_text() == "content"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_where_no_disk_can_be_written_that_is_said_and_nothing_is_left(root, elsewhere, number):
    def failing(folder):
        fill(folder)
        raise OSError(number, os.strerror(number))

    with (
        pytest.raises(EnvironmentProblemError, match=os.strerror(number)) as told,
        LocalCache(root).held("key", failing),
    ):
        pass
    assert "PUFFIN_ANN_CACHE_DIR" in str(told.value)
    assert not isinstance(told.value, LocalCopyError)
    assert [*root.iterdir(), *elsewhere.iterdir()] == []


def test_a_file_that_grows_beyond_what_is_allowed_is_the_disks_fault(root, elsewhere):
    def limited(folder):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        try:
            (folder / "data").write_bytes(bytes(10_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with (
        pytest.raises(EnvironmentProblemError, match="File too large"),
        LocalCache(root).held("key", limited),
    ):
        pass


def unused_for(folder, seconds):
    """Have a folder be one that nobody used for so long; return its bytes."""
    then = time.time() - seconds
    os.utime(folder / MARK, (then, then))
    return sum(path.stat().st_size for path in folder.iterdir() if path.name != MARK)


def test_a_full_disk_has_other_shards_make_way(root, monkeypatch, caplog):
    cache = LocalCache(root)
    with cache.held("old", fill) as old:
        size = unused_for(old, 2 * module.RECENT_SECONDS)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 0))
    with cache.held("new", fill, size=size) as new:
        assert not old.exists()
    assert new.exists()
    assert f"the disk of {root} is nearly full" in caplog.text


def test_a_cache_does_not_grow_on_a_disk_that_is_nearly_full(root, monkeypatch):
    cache = LocalCache(root)
    for key in ("oldest", "old"):
        with cache.held(key, fill) as folder:
            size = unused_for(folder, 2 * module.RECENT_SECONDS)
    most = 20 * size
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(most, most - size, size)
    )
    with cache.held("new", fill, size=size):
        pass
    assert cache.statistics.evicted == 1
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(most, 0, 2 * size)
    )
    with cache.held("newer", fill, size=size):
        pass
    assert cache.statistics.evicted == 1


def test_on_a_full_disk_a_small_shard_takes_the_place_of_no_large_one(root, monkeypatch):
    cache = LocalCache(root)
    with cache.held("large", lambda folder: (folder / "data").write_bytes(bytes(5000))) as large:
        unused_for(large, 2 * module.RECENT_SECONDS)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 0))
    with cache.held("small", fill, size=100):
        assert large.exists()


def test_on_a_full_disk_the_shards_of_an_index_stay_side_by_side(root, monkeypatch):
    cache = LocalCache(root)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 0))
    for number in range(3):
        with cache.held(f"shard {number}", fill, size=5000):
            pass
    again = LocalCache(root)
    for number in range(3):
        with again.held(f"shard {number}", fill, size=5000):
            pass
    assert (again.statistics.hits, cache.statistics.evicted) == (3, 0)


def test_a_disk_that_other_shards_do_not_fill_costs_none_of_them(root, elsewhere, monkeypatch):
    cache = LocalCache(root)
    with cache.held("old", fill) as old:
        pass
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 0))
    with cache.held("new", fill, size=5000):
        assert old.exists()


def test_damaged_bytes_are_not_the_disks_fault(root, elsewhere):
    def damaged(folder):
        raise PuffinFormatError("wrong bytes")

    with pytest.raises(PuffinFormatError), LocalCache(root).held("key", damaged):
        pass
    assert list(root.iterdir()) == []


def test_a_cache_that_a_cleaner_removed_is_made_again(root):
    cache = LocalCache(root)
    with cache.held("key", fill):
        pass
    shutil.rmtree(root)
    with cache.held("key", fill) as folder:
        assert folder.parent == root
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_a_cache_that_another_user_made_meanwhile_is_not_used(root, elsewhere, monkeypatch, caplog):
    cache = LocalCache(root)
    with cache.held("key", fill):
        pass
    monkeypatch.setattr(private_folders, "_OTHERS_ENTER", 0o700)  # whatever this lies in
    root.chmod(0o777)
    with cache.held("key", lambda folder: (folder / "data").write_text("mine")) as folder:
        assert (folder / "data").read_text() == "mine"
    assert not folder.exists()
    assert "other users may write" in caplog.text


def test_a_folder_that_another_user_planted_is_filled_anew(root, monkeypatch):
    cache = LocalCache(root)
    with cache.held("key", fill) as planted:
        (planted / "data").write_text("planted")
        Seal.put(planted)
    monkeypatch.setattr(module, "belongs_to_us", lambda path: False)
    with cache.held("key", fill) as folder:
        assert (folder / "data").read_text() == "content"


def test_a_folder_that_cannot_be_removed_is_left_and_said(root, monkeypatch, caplog):
    cache = LocalCache(root)
    with cache.held("key", fill) as folder:
        pass

    def refused(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "rename", refused)
    cache.forget(folder)
    assert "cannot be removed" in caplog.text
    (folder / MARK).unlink()
    with cache.held("key", fill) as other:
        assert (other / "data").read_text() == "content"


def test_without_any_folder_for_a_cache_this_process_has_its_own(elsewhere, monkeypatch, caplog):
    def none(leaf):
        raise module.CacheUnusableError("nothing can be used")

    monkeypatch.setattr(module, "cache_folder", none)
    cache = LocalCache()
    with cache.held("key", fill) as folder:
        assert folder.is_relative_to(elsewhere)
    del cache
    gc.collect()
    assert list(elsewhere.iterdir()) == []
    assert "for this process alone: nothing can be used" in caplog.text
