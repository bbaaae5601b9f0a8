import errno
import os

import numpy as np
import pytest

from puffin_ann.ann.core.memmap import new_array
from puffin_ann.ann.vamana import append_files


def test_a_mapped_array_has_its_room_on_disk_before_it_is_written(tmp_path):
    array = new_array(tmp_path / "a.npy", np.float32, (1000, 100))
    assert (tmp_path / "a.npy").stat().st_blocks * 512 >= array.nbytes
    array[:] = 1
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.ones((1000, 100), np.float32))


@pytest.mark.parametrize(("code", "raised"), [(errno.ENOSPC, True), (errno.EOPNOTSUPP, False)])
def test_a_full_disk_is_an_error_and_a_file_system_that_cannot_tell_is_none(
    tmp_path, monkeypatch, code, raised
):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    if raised:
        with pytest.raises(OSError, match="No space"):
            new_array(tmp_path / "a.npy", np.uint8, (3, 3))
    else:
        assert new_array(tmp_path / "a.npy", np.uint8, (3, 3)).shape == (3, 3)


@pytest.mark.parametrize(("stored", "added"), [(0, 0), (0, 5), (7, 0), (23, 9)])
def test_appended_rows_follow_the_stored_ones_whatever_is_copied_at_a_time(
    stored, added, tmp_path, monkeypatch
):
    monkeypatch.setattr(append_files, "COPIED_BYTES", 4 * 3 * 10)
    rows = np.random.default_rng(0).standard_normal((stored + added, 3)).astype(np.float32)
    np.save(tmp_path / "stored.npy", rows[:stored])
    before = np.load(tmp_path / "stored.npy", mmap_mode="r" if stored else None)
    found = append_files.append_vectors(before, rows[stored:], tmp_path / "appended.npy")
    assert found.shape == rows.shape
    assert np.array_equal(found, rows)
